// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfigs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// SecretKey is the key of the kubeconfig in a Secret.
const SecretKey = "kubeconfig"

// Loader reads the credentials that the connection of a WorkerCluster names. All its fields are required.
type Loader struct {
	// Reader reads Secrets: the manager's cached client.
	Reader client.Reader
	// Namespace is the namespace of the Secrets: the manager's own.
	Namespace string
	// Clock decides what has expired.
	Clock clock.PassiveClock
}

// Load reads and parses a kubeconfig. If ReasonOf gives no reason for the error, a retry may help.
func (l *Loader) Load(ctx context.Context, connection v1alpha1.Connection) (*Credentials, error) {
	if connection.KubeconfigSecretRef != nil {
		return l.loadSecret(ctx, types.NamespacedName{Namespace: l.Namespace, Name: connection.KubeconfigSecretRef.Name})
	}
	if connection.KubeconfigPath != "" {
		return l.loadFile(connection.KubeconfigPath)
	}
	return nil, fmt.Errorf("%w: the connection names neither a Secret nor a file", ErrNotFound)
}

func (l *Loader) loadSecret(ctx context.Context, key types.NamespacedName) (*Credentials, error) {
	secret := &corev1.Secret{}
	if err := l.Reader.Get(ctx, key, secret); apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: there is no Secret %q in namespace %q", ErrNotFound, key.Name, key.Namespace)
	} else if err != nil {
		return nil, fmt.Errorf("get Secret %q in namespace %q: %w", key.Name, key.Namespace, err)
	}
	data := secret.Data[SecretKey]
	if len(data) == 0 {
		return nil, fmt.Errorf("%w: Secret %q in namespace %q has nothing under the key %q; %s", ErrNotFound, key.Name, key.Namespace,
			SecretKey, OtherKeys(secret.Data))
	}
	return Parse(data, l.Clock.Now())
}

// OtherKeys says which keys the data of a Secret has that has no kubeconfig. It shows no value.
func OtherKeys(data map[string][]byte) string {
	const most = 10
	keys := slices.DeleteFunc(slices.Sorted(maps.Keys(data)), func(key string) bool { return key == SecretKey })
	if len(keys) == 0 {
		return "it has no other key"
	}
	more := ""
	if len(keys) > most {
		keys, more = keys[:most], fmt.Sprintf(" and %d more", len(keys)-most)
	}
	quoted := make([]string, 0, len(keys))
	for _, key := range keys {
		quoted = append(quoted, strconv.Quote(key))
	}
	return "it has " + strings.Join(quoted, ", ") + more
}

func (l *Loader) loadFile(path string) (*Credentials, error) {
	if !filepath.IsAbs(path) {
		return nil, newError([]Fault{{Path: "kubeconfigPath", Problem: "is not absolute", Remedy: "give a path that begins with /"}})
	}
	data, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: there is no file %q", ErrNotFound, path)
	} else if err != nil {
		return nil, fmt.Errorf("%w: file %q cannot be read: %w", ErrNotFound, path, err)
	}
	if len(data) == 0 {
		return nil, fmt.Errorf("%w: file %q is empty", ErrNotFound, path)
	}
	return Parse(data, l.Clock.Now())
}

// readFile reads at most one byte more than a kubeconfig may have. It opens only regular files: a pipe would block.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxSize+1))
}
