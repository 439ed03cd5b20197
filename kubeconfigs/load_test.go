// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfigs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// secrets is a reader of Secrets, by namespace/name.
type secrets struct {
	client.Reader
	data map[string]map[string][]byte
	err  error
}

func (s secrets) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if s.err != nil {
		return s.err
	}
	data, ok := s.data[key.String()]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, key.Name)
	}
	obj.(*corev1.Secret).Data = data
	return nil
}

func TestLoad(t *testing.T) {
	good := toYAML(t, newKubeconfig(t))
	directory := t.TempDir()
	path := func(name string) string { return filepath.Join(directory, name) }
	for name, data := range map[string][]byte{"good": good, "bad": []byte("hunter2"), "empty": nil} {
		check.Must(t, os.WriteFile(path(name), data, 0o600))
	}
	check.Must(t, syscall.Mkfifo(path("pipe"), 0o600))
	many := map[string][]byte{}
	for i := range 30 {
		many[fmt.Sprintf("k%02d", i)] = good
	}
	reader := secrets{data: map[string]map[string][]byte{
		"trainyard-system/good":   {"kubeconfig": good},
		"trainyard-system/bad":    {"kubeconfig": []byte("{}")},
		"trainyard-system/no-key": {"config": good, "ca.crt": []byte("hunter2")},
		"trainyard-system/empty":  {"kubeconfig": nil},
		"trainyard-system/many":   many,
		"elsewhere/foreign":       {"kubeconfig": good},
	}}
	secret := func(name string) v1alpha1.Connection {
		return v1alpha1.Connection{KubeconfigSecretRef: &v1alpha1.SecretReference{Name: name}}
	}
	file := func(name string) v1alpha1.Connection { return v1alpha1.Connection{KubeconfigPath: path(name)} }

	cases := map[string]struct {
		reason     string
		connection v1alpha1.Connection
		want       string
		text       string
	}{
		"Secret":        {reason: "The usual way.", connection: secret("good")},
		"File":          {reason: "The other way.", connection: file("good")},
		"SecretMissing": {"Not there yet.", secret("gone"), "CredentialsNotFound", `there is no Secret "gone" in namespace "trainyard-system"`},
		"SecretElsewhere": {
			"Only the manager's own namespace counts.", secret("foreign"),
			"CredentialsNotFound", `there is no Secret "foreign"`,
		},
		"SecretKey": {
			"Another key, which an admin recognises.", secret("no-key"), "CredentialsNotFound",
			`has nothing under the key "kubeconfig"; it has "ca.crt", "config"`,
		},
		"SecretEmpty": {"Half a write.", secret("empty"), "CredentialsNotFound", `"kubeconfig"; it has no other key`},
		"SecretKeys": {
			"A message has an end.", secret("many"), "CredentialsNotFound", `it has "k00", "k01", "k02", "k03", "k04", "k05", "k06", "k07", ` +
				`"k08", "k09" and 20 more`,
		},
		"SecretBad":   {"Parse decides.", secret("bad"), "InvalidKubeconfig", "contexts: none names"},
		"FileMissing": {"Not mounted yet.", file("gone"), "CredentialsNotFound", "there is no file"},
		"FileEmpty":   {"Half a write.", file("empty"), "CredentialsNotFound", "is empty"},
		"FileBad":     {"Parse decides, and quotes nothing.", file("bad"), "InvalidKubeconfig", "kubeconfig: has the wrong type"},
		"Pipe":        {"Opening it would wait for ever.", file("pipe"), "CredentialsNotFound", "is not a regular file"},
		"Relative": {
			"It would depend on where the manager was started.", v1alpha1.Connection{KubeconfigPath: "config"},
			"InvalidKubeconfig", "kubeconfigPath: is not absolute",
		},
		"Nothing": {"The API forbids it.", v1alpha1.Connection{}, "CredentialsNotFound", "neither a Secret nor a file"},
	}
	loader := &Loader{Reader: reader, Namespace: "trainyard-system", Clock: testingclock.NewFakePassiveClock(now)}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			credentials, err := loader.Load(t.Context(), tc.connection)
			if (err == nil) != (credentials != nil) {
				t.Fatalf("%s\nLoad = %v, %v", tc.reason, credentials, err)
			}
			check.Equal(t, tc.want, ReasonOf(err), "%s: ReasonOf(%v)", tc.reason, err)
			if err != nil && (!strings.Contains(err.Error(), tc.text) || strings.Contains(err.Error(), "hunter2")) {
				t.Errorf("%s\nerror %q, want one with %q", tc.reason, err, tc.text)
			}
		})
	}

	unavailable := errors.New("the API server is away")
	loader.Reader = secrets{err: unavailable}
	if _, err := loader.Load(t.Context(), secret("good")); !errors.Is(err, unavailable) || ReasonOf(err) != "" {
		t.Errorf("Load = %v with reason %q, want the reader's error and no reason", err, ReasonOf(err))
	}
}
