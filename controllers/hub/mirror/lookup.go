// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/trainyard/trainyard/api/dependencies"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/lookup"
)

// LookUp looks on a worker for the objects that the pods of copies name. It reads only metadata, so it does not see the keys
// of Secrets.
type LookUp struct {
	// References returns what the pods of a copy name, by the runtime that the hub has.
	References func(ctx context.Context, copy *unstructured.Unstructured) ([]dependencies.Reference, error)
	// Permitted says whether the worker lets the hub look. Refused is called when the worker has forbidden it all the same.
	Permitted func() bool
	Refused   func()
}

// missing returns a refusal if the worker lacks something without which the pods of a copy do not start. What cannot be
// found out is not missing.
func (l *LookUp) missing(
	ctx context.Context, connection copies.Connection, worker v1alpha1.ClusterName, copy *unstructured.Unstructured,
) error {
	live, err := connection.APIReader()
	if err != nil || !l.Permitted() {
		return err
	}
	references, err := l.References(ctx, copy)
	if err != nil {
		log.FromContext(ctx).V(1).Info("Not known what the pods of the job name", "reason", err.Error())
		return nil
	}
	references = slices.DeleteFunc(references, func(r dependencies.Reference) bool {
		// Kubernetes makes the account default, a moment after the namespace.
		return r.Need != dependencies.Required || r.Object == dependencies.Object{Kind: dependencies.ServiceAccount, Name: "default"}
	})
	states, faults := lookup.Finder{Reader: live}.States(ctx, copy.GetNamespace(), references)
	for _, err := range faults {
		log.FromContext(ctx).V(1).Info("Not looked for", "reason", err.Error())
	}
	if len(states) == 0 && slices.ContainsFunc(faults, apierrors.IsForbidden) {
		l.Refused()
	}
	words := dependencies.Words(dependencies.Missing(references, dependencies.Required, states), copy.GetNamespace())
	if words == "" {
		return nil
	}
	return refusal(fmt.Sprintf("worker %q lacks what the pods of the job name: %s; keys not checked", worker, words))
}
