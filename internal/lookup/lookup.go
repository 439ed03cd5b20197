// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lookup looks on one cluster for the objects that the pods of a job name (api/dependencies). It reads each object
// once, by a get, and keeps nothing. No value of a Secret leaves it.
//
// How to use it: States returns what the cluster has of the objects of some references, whose kinds Knows knows.
//
// Watch out: the Reader must read from the API server. A cache would list and keep the Secrets of all namespaces.
package lookup

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/dependencies"
)

const (
	// mostObjects is how many objects are looked for. A runtime can name any number. Those after it are taken to be there.
	mostObjects = 64
	// readsAtOnce is how many of them are looked for at the same time.
	readsAtOnce = 8
)

// kinds are the kinds that can be looked for. Nothing in Kubernetes 1.36 waits for the other kinds by default.
var kinds = map[dependencies.Kind]schema.GroupVersionKind{
	dependencies.Secret:                corev1.SchemeGroupVersion.WithKind("Secret"),
	dependencies.ConfigMap:             corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	dependencies.ServiceAccount:        corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
	dependencies.PersistentVolumeClaim: corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"),
	dependencies.ResourceClaim:         resourceapi.SchemeGroupVersion.WithKind("ResourceClaim"),
	dependencies.ResourceClaimTemplate: resourceapi.SchemeGroupVersion.WithKind("ResourceClaimTemplate"),
	dependencies.PriorityClass:         schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"),
	dependencies.RuntimeClass:          nodev1.SchemeGroupVersion.WithKind("RuntimeClass"),
}

// Knows says whether objects of a kind can be looked for.
func Knows(kind dependencies.Kind) bool {
	_, known := kinds[kind]
	return known
}

// Finder looks for objects.
type Finder struct {
	// Reader reads from the API server of the cluster.
	Reader client.Reader
	// Keys reads the contents of a Secret or ConfigMap of which a key is named. Without it, only metadata is read.
	Keys bool
}

// States returns what the cluster has of the objects that references name. Objects that cannot be read are not among
// them, and the faults say why.
func (f Finder) States(
	ctx context.Context, namespace string, references []dependencies.Reference,
) (states map[dependencies.Object]dependencies.State, faults []error) {
	keyed := map[dependencies.Object]bool{}
	var order []dependencies.Object
	for _, r := range references {
		if _, seen := keyed[r.Object]; !seen && Knows(r.Kind) {
			order = append(order, r.Object)
		}
		keyed[r.Object] = keyed[r.Object] || f.Keys && r.Key != ""
	}
	order = order[:min(len(order), mostObjects)]
	found, errs := make([]dependencies.State, len(order)), make([]error, len(order))
	var reads errgroup.Group
	reads.SetLimit(readsAtOnce)
	for i, object := range order {
		reads.Go(func() error {
			found[i], errs[i] = f.state(ctx, namespace, object, keyed[object])
			return nil
		})
	}
	_ = reads.Wait() // No read stops the others.
	states = map[dependencies.Object]dependencies.State{}
	for i, object := range order {
		if errs[i] != nil {
			faults = append(faults, errs[i])
		} else {
			states[object] = found[i]
		}
	}
	return states, faults
}

func (f Finder) state(
	ctx context.Context, namespace string, object dependencies.Object, withKeys bool,
) (state dependencies.State, err error) {
	if object.Kind.OfCluster() {
		namespace = ""
	}
	into := objectOf(object.Kind, withKeys)
	err = f.Reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: object.Name}, into)
	switch {
	case apierrors.IsNotFound(err):
		return dependencies.State{Absent: true}, nil
	case err != nil:
		return state, fmt.Errorf("get %s %q: %w", object.Kind, object.Name, err)
	}
	state.Deleting = into.GetDeletionTimestamp() != nil
	switch o := into.(type) {
	case *corev1.Secret:
		state.Keys = sets.New(slices.Collect(maps.Keys(o.Data))...)
	case *corev1.ConfigMap:
		state.TextKeys = sets.New(slices.Collect(maps.Keys(o.Data))...)
		state.Keys = state.TextKeys.Union(sets.New(slices.Collect(maps.Keys(o.BinaryData))...))
	}
	return state, nil
}

func objectOf(kind dependencies.Kind, withKeys bool) client.Object {
	switch {
	case withKeys && kind == dependencies.Secret:
		return &corev1.Secret{}
	case withKeys && kind == dependencies.ConfigMap:
		return &corev1.ConfigMap{}
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kinds[kind])
	return object
}
