// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"fmt"
	"maps"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/dependencies"
)

const (
	ruleDependencies = "Dependencies"

	// mostObjects is how many objects are looked for. A runtime can name any number. Those after it are taken to be there.
	mostObjects = 64
	// readsAtOnce is how many of them are looked for at the same time.
	readsAtOnce = 8
)

// OnMissing says what is done about objects that the pods of a job name, and that are not there.
type OnMissing int

const (
	// IgnoreMissing looks for no object.
	IgnoreMissing OnMissing = iota
	// WarnOfMissing warns, also of Secrets to pull images with.
	WarnOfMissing
	// RefuseMissing refuses a job whose pods cannot start.
	RefuseMissing
)

// lookedFor are the kinds of objects that are looked for. The dry run of a pod finds accounts and classes that are missing,
// and nothing of Kubernetes 1.36 waits for the other kinds by default.
var lookedFor = map[dependencies.Kind]schema.GroupVersionKind{
	dependencies.Secret:                corev1.SchemeGroupVersion.WithKind("Secret"),
	dependencies.ConfigMap:             corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	dependencies.PersistentVolumeClaim: corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"),
	dependencies.ResourceClaim:         resourceapi.SchemeGroupVersion.WithKind("ResourceClaim"),
	dependencies.ResourceClaimTemplate: resourceapi.SchemeGroupVersion.WithKind("ResourceClaimTemplate"),
}

// dependencies says what the pods of a JobSet name that is not there. Pods without it hang, some of them without a word.
func (c *Checker) dependencies(ctx context.Context, job *trainer.TrainJob, made *built, on OnMissing) (found Result) {
	if on == IgnoreMissing {
		return found
	}
	jobSet, err := typed(made.jobSet)
	if err != nil {
		return found // The dry run says so.
	}
	needs := []dependencies.Need{dependencies.Required}
	if on == WarnOfMissing {
		needs = append(needs, dependencies.ForImages)
	}
	references := slices.DeleteFunc(dependencies.Of(jobSet, made.others...), func(r dependencies.Reference) bool {
		_, looked := lookedFor[r.Kind]
		return !looked || !slices.Contains(needs, r.Need)
	})
	states, found := c.states(ctx, job.Namespace, references)
	words := func(need dependencies.Need) string {
		return dependencies.Words(dependencies.Missing(references, need, states), job.Namespace)
	}
	if missing := words(dependencies.Required); missing != "" && on == RefuseMissing {
		found.Faults = append(found.Faults, Fault{Rule: ruleDependencies, Err: field.Forbidden(field.NewPath("metadata", "namespace"), missing)})
	} else if missing != "" {
		found.Warn("%s: the pods wait until it is there", missing)
	}
	if missing := words(dependencies.ForImages); missing != "" {
		found.Warn("%s: images that are not public cannot be pulled without it", missing)
	}
	return found
}

// states asks the API server for each object once. An object that cannot be read is a warning, and counts as there.
func (c *Checker) states(
	ctx context.Context, namespace string, references []dependencies.Reference,
) (map[dependencies.Object]dependencies.State, Result) {
	keyed := map[dependencies.Object]bool{}
	var order []dependencies.Object
	for _, r := range references {
		if _, seen := keyed[r.Object]; !seen {
			order = append(order, r.Object)
		}
		keyed[r.Object] = keyed[r.Object] || r.Key != ""
	}
	order = order[:min(len(order), mostObjects)]
	states, faults := make([]dependencies.State, len(order)), make([]error, len(order))
	var reads errgroup.Group
	reads.SetLimit(readsAtOnce)
	for i, object := range order {
		reads.Go(func() error {
			defer logPanic(ctx)
			states[i], faults[i] = c.state(ctx, namespace, object, keyed[object])
			return nil
		})
	}
	_ = reads.Wait() // No read stops the others.
	all, found := map[dependencies.Object]dependencies.State{}, Result{}
	for i, object := range order {
		if faults[i] != nil {
			found.Warn("cannot check whether %s %q is there: %v", object.Kind, object.Name, faults[i])
			continue
		}
		all[object] = states[i]
	}
	return all, found
}

// state reads one object. It reads the contents of a Secret or ConfigMap only if a key is named, and returns names.
func (c *Checker) state(
	ctx context.Context, namespace string, object dependencies.Object, withKeys bool,
) (state dependencies.State, err error) {
	into := objectOf(object.Kind, withKeys)
	err = c.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: object.Name}, into)
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
	object.SetGroupVersionKind(lookedFor[kind])
	return object
}
