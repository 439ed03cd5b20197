// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/trainyard/trainyard/api/dependencies"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/lookup"
)

const (
	// lookupAgain is after how long a worker that does not let the hub look is asked again whether it does.
	lookupAgain = 10 * time.Minute
	// askedSecret is a Secret that is not there: a worker says so only to who may get Secrets.
	askedSecret = "trainyard-probe"
)

// referencesFunc returns what the pods of a copy name, by the hub's runtime.
type referencesFunc func(ctx context.Context, copy *unstructured.Unstructured) ([]dependencies.Reference, error)

// names looks on the worker for the objects that the pods of copies name. It reads only metadata, so it does not see the
// keys of Secrets.
type names struct {
	references referencesFunc
	connection copies.Connection
	clock      clock.PassiveClock

	mu sync.Mutex
	// Both are under mu: whether the worker lets the hub look, and when it was asked. Zero: it was not asked.
	permitted bool
	asked     time.Time
}

// missing returns a refusal if the worker lacks something without which the pods of a copy do not start. What cannot be
// found out is not missing.
func (n *names) missing(ctx context.Context, worker v1alpha1.ClusterName, copy *unstructured.Unstructured) error {
	live, err := n.connection.APIReader()
	if err != nil || !n.mayLook(ctx, live, copy.GetNamespace()) {
		return err
	}
	references, err := n.references(ctx, copy)
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
		n.learn(false) // The rights have been taken back.
	}
	words := dependencies.Words(dependencies.Missing(references, dependencies.Required, states), copy.GetNamespace())
	if words == "" {
		return nil
	}
	return refusal(fmt.Sprintf("worker %q lacks what the pods of the job name: %s; keys not checked", worker, words))
}

// mayLook says whether the worker lets the hub get Secrets, and so the rest that config/worker-lookup grants. It asks once,
// and again from time to time as long as the worker does not.
func (n *names) mayLook(ctx context.Context, live client.Reader, namespace string) bool {
	now := n.clock.Now()
	n.mu.Lock()
	permitted, known := n.permitted, !n.asked.IsZero() && (n.permitted || now.Sub(n.asked) < lookupAgain)
	n.mu.Unlock()
	if known {
		return permitted
	}
	err := live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: askedSecret}, metadataOf("v1", "Secret"))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return false // It is asked again for the next job.
	}
	return n.learn(!apierrors.IsForbidden(err))
}

func (n *names) learn(permitted bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.permitted, n.asked = permitted, n.clock.Now()
	return permitted
}
