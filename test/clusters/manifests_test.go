// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/upstream"
)

func TestReadObjects(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"b.yaml":             "kind: B\n---\n# nothing but a comment\n---\nkind: C\n",
		"a.yml":              "kind: A",
		"kustomization.yaml": "kind: Kustomization",
		"notes.txt":          "kind: Text",
		"bad":                "kind: [",
		"below/d.yaml":       "kind: D",
	} {
		check.Must(t, writeFile(filepath.Join(dir, name), []byte(content)))
	}
	tests := map[string]struct {
		reason  string
		paths   []string
		want    []string
		wantErr string
	}{
		"Directory":   {reason: "its YAML files in order, without empty documents", paths: []string{"."}, want: []string{"A", "B", "C"}},
		"File":        {reason: "any name will do for a file", paths: []string{"notes.txt", "b.yaml"}, want: []string{"Text", "B", "C"}},
		"NoSuchFile":  {reason: "a path that is missing is a mistake", paths: []string{"a.yml", "e.yaml"}, wantErr: "e.yaml"},
		"InvalidYAML": {reason: "the error names the file", paths: []string{"bad"}, wantErr: "parse " + filepath.Join(dir, "bad")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var paths, got []string
			for _, path := range tc.paths {
				paths = append(paths, filepath.Join(dir, path))
			}
			objects, err := ReadObjects(paths...)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("%s: want an error with %q, got: %v", tc.reason, tc.wantErr, err)
				}
				return
			}
			check.Must(t, err)
			for _, object := range objects {
				got = append(got, object.GetKind())
			}
			check.Diff(t, tc.want, got, tc.reason)
		})
	}
}

func TestWebhookURLs(t *testing.T) {
	server := &WebhookServer{Host: "127.0.0.1", Port: 9443, CABundle: []byte("ca")}
	configuration := func(kind string, clientConfig map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"kind":     kind,
			"webhooks": []any{map[string]any{"name": "a.example.com", "clientConfig": clientConfig}},
		}}
	}
	service := func() map[string]any {
		return map[string]any{"caBundle": "old", "service": map[string]any{"name": "s", "namespace": "n", "path": "/validate"}}
	}
	url := map[string]any{"url": "https://127.0.0.1:9443/validate", "caBundle": "Y2E="}
	elsewhere := map[string]any{"url": "https://example.com/validate"}
	tests := map[string]struct {
		reason string
		object *unstructured.Unstructured
		want   *unstructured.Unstructured
	}{
		"Validating": {
			reason: "a Service becomes the URL with its path",
			object: configuration("ValidatingWebhookConfiguration", service()),
			want:   configuration("ValidatingWebhookConfiguration", url),
		},
		"Mutating": {
			reason: "for both kinds",
			object: configuration("MutatingWebhookConfiguration", service()),
			want:   configuration("MutatingWebhookConfiguration", url),
		},
		"URL": {
			reason: "a URL is somebody else's server",
			object: configuration("MutatingWebhookConfiguration", elsewhere),
			want:   configuration("MutatingWebhookConfiguration", elsewhere),
		},
		"OtherKind": {
			reason: "other kinds are not ours to change",
			object: configuration("Gadget", service()),
			want:   configuration("Gadget", service()),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			check.Must(t, WebhookURLs(server, tc.object))
			check.Diff(t, tc.want.Object, tc.object.Object, tc.reason)
		})
	}
}

func TestOptionsComplete(t *testing.T) {
	tests := map[string]struct {
		reason  string
		options Options
		wantErr string
	}{
		"NoName":        {reason: "the name goes into paths and kubeconfigs", wantErr: `"" is not a DNS label`},
		"BadName":       {reason: "and into etcd's arguments", options: Options{Name: "a,b"}, wantErr: `"a,b" is not a DNS label`},
		"JobSetAlone":   {reason: "nobody would run its Jobs", options: Options{Name: "a", JobSet: true}, wantErr: "needs the controller manager"},
		"NodesAlone":    {reason: "nobody would untaint them", options: Options{Name: "a", Nodes: []NodeShape{{Count: 1}}}, wantErr: "need the controller manager"},
		"Full":          {reason: "all parts go together", options: Full("a", NodeShape{Count: 1})},
		"NothingAround": {reason: "an API server needs nobody", options: Options{Name: "a"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.wantErr == "" {
				tc.options.Dir = t.TempDir()
			}
			_, _, err := tc.options.complete()
			if got := errorText(err); tc.wantErr == "" && err != nil || !strings.Contains(got, tc.wantErr) {
				t.Errorf("%s: want %q, got %q", tc.reason, tc.wantErr, got)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestRepositoryRootGoesPastNestedModules(t *testing.T) {
	want, err := repositoryRoot()
	check.Must(t, err)
	if got, err := rootAbove(filepath.Join(want, "test", "controlplane")); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if got, err := rootAbove(os.TempDir()); err == nil {
		t.Errorf("outside the repository: got %q, want an error", got)
	}
}

func TestPrograms(t *testing.T) {
	dir := t.TempDir()
	release := fakeRelease(t, dir, "1.36.0")
	tests := map[string]struct {
		reason   string
		programs programs
		path     string
		args     []string
		openAPI  []string
	}{
		"Ours": {
			reason:   "one binary is all parts",
			programs: programs{ours: "/bin/controlplane"},
			path:     "/bin/controlplane", args: []string{"kube-scheduler", "--flag"}, openAPI: []string{"--openapi=false"},
		},
		"Release": {
			reason:   "each part has a binary, and none has our own flags",
			programs: programs{release: release},
			path:     filepath.Join(dir, "kube-scheduler"), args: []string{"--flag"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			path, args := tc.programs.command("kube-scheduler", []string{"--flag"})
			check.Equal(t, tc.path, path, "%s: path", tc.reason)
			check.Diff(t, tc.args, args, fmt.Sprintf("%s: arguments", tc.reason))
			check.Diff(t, tc.openAPI, tc.programs.apiServerArgs(Options{}),
				fmt.Sprintf("%s: arguments of the API server only", tc.reason))
		})
	}
}

// The default release is the one of go.mod, and each release has a file that says of what it is made.
func TestReleases(t *testing.T) {
	root, err := repositoryRoot()
	check.Must(t, err)
	data, err := os.ReadFile(modFile(root, DefaultRelease))
	check.Must(t, err)
	if text := "\tk8s.io/kubernetes v" + DefaultRelease + "."; !strings.Contains(string(data), text) {
		t.Errorf("go.mod of the control plane lacks %q", text)
	}
	for _, release := range []string{"1.34", "1.35", "1.37"} {
		if _, err := os.Stat(modFile(root, release)); err != nil {
			t.Error(err)
		}
	}
}

// Each release has a binary of its own, and who lacks it learns the command that builds it.
func TestProgramsOfAnotherRelease(t *testing.T) {
	if os.Getenv(upstream.Variable) != "" {
		t.Skip("nobody builds a control plane of our own")
	}
	dir := t.TempDir()
	for _, path := range []string{"controlplane", "1.34/controlplane"} {
		check.Must(t, writeFile(filepath.Join(dir, path), nil))
	}
	for release, want := range map[string]string{DefaultRelease: "controlplane", "1.34": "1.34/controlplane"} {
		found, err := findPrograms(dir, release)
		check.Must(t, err)
		check.Equal(t, filepath.Join(dir, want), found.ours, "program of Kubernetes %s", release)
	}
	_, err := findPrograms(dir, "1.37")
	if text := errorText(err); !strings.Contains(text, filepath.Join(dir, "1.37/controlplane")) || !strings.Contains(text, `"hack/build-controlplane.sh 1.37"`) {
		t.Errorf("got: %v", err)
	}
}

// Clusters of one release must not begin with the baseline of another.
func TestReleasesHaveDifferentBaselines(t *testing.T) {
	var texts [3]bytes.Buffer
	for i, version := range []string{"1.36.0", "1.36.0", "1.36.1"} {
		p := programs{release: fakeRelease(t, t.TempDir(), version)}
		check.Must(t, p.identify(&texts[i]))
	}
	if texts[0].String() != texts[1].String() {
		t.Errorf("two copies of a release differ: %q and %q", &texts[0], &texts[1])
	}
	if texts[0].String() == texts[2].String() {
		t.Errorf("two releases are the same: %q", &texts[0])
	}
}

// fakeRelease makes scripts that say nothing but their version, which is in another file.
func fakeRelease(t *testing.T, dir, version string) *upstream.Release {
	t.Helper()
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"} {
		path := filepath.Join(dir, name)
		err := errors.Join(os.WriteFile(path, []byte("#!/bin/sh\ncat \"$0.version\"\n"), 0o700), os.WriteFile(path+".version", []byte(version), 0o600))
		check.Must(t, err)
	}
	goMod := filepath.Join(t.TempDir(), "go.mod")
	check.Must(t, os.WriteFile(goMod, []byte("require go.etcd.io/etcd/server/v3 v1.36.3\nrequire k8s.io/kubernetes v1.36.3\n"), 0o600))
	release, err := upstream.Open(t.Context(), dir, goMod)
	check.Must(t, err)
	return release
}
