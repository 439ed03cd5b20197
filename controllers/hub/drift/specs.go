// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package drift

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/internal/requeue"
)

// specs are the specs of the hub's runtimes, as the hub's API server has them: a Go type of one release of Trainer would
// lose the fields that it does not know. All workers share them.
type specs struct {
	reader client.Reader

	mu sync.Mutex
	// known is under mu.
	known map[types.NamespacedName]spec
}

// spec is the spec of a runtime in JSON, and its version.
type spec struct {
	version string
	data    json.RawMessage
}

// get returns the spec of a runtime in a version. It fails with a conflict if the hub has another version.
func (s *specs) get(ctx context.Context, key types.NamespacedName, version string) (json.RawMessage, error) {
	s.mu.Lock()
	known := s.known[key]
	s.mu.Unlock()
	if known.version == version {
		return known.data, nil
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(trainer.SchemeGroupVersion.WithKind(kindOf(key)))
	if err := s.reader.Get(ctx, key, live); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, requeue.Outdated("the cache does not show that the hub's runtime is gone")
		}
		return nil, fmt.Errorf("get the hub's %s %q: %w", kindOf(key), key.Name, err)
	}
	if versionOf(live) != version {
		return nil, requeue.Outdated("the cache does not show the hub's runtime as it is")
	}
	data, err := json.Marshal(live.Object["spec"])
	if err != nil {
		return nil, fmt.Errorf("encode the hub's %s %q: %w", kindOf(key), key.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[types.NamespacedName]spec{}
	}
	s.known[key] = spec{version: version, data: data}
	return data, nil
}

// forget drops the spec of a runtime that the hub does not have any more.
func (s *specs) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, key)
}

// versionOf is "<UID>.<generation>" of an object.
func versionOf(object metav1.Object) string {
	return fmt.Sprintf("%s.%d", object.GetUID(), object.GetGeneration())
}
