// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/internal/spelling"
)

const (
	ruleRuntimeKind  = "RuntimeKind"
	ruleRuntimeFound = "RuntimeFound"

	// snapshotKey is not exported by the framework (trainer v2.3.0 pkg/runtime/core/snapshot.go).
	snapshotKey = "runtime"

	// mostNames is how many names an answer lists.
	mostNames = 10
)

var runtimeRefPath = field.NewPath("spec", "runtimeRef")

// Runtime is the runtime from which a TrainJob's JobSet is or will be built.
type Runtime struct {
	// object is a TrainingRuntime or a ClusterTrainingRuntime.
	object client.Object
	spec   *trainer.TrainingRuntimeSpec
}

func newRuntime(object client.Object) *Runtime {
	switch o := object.(type) {
	case *trainer.TrainingRuntime:
		return &Runtime{object: o, spec: &o.Spec}
	case *trainer.ClusterTrainingRuntime:
		return &Runtime{object: o, spec: &o.Spec}
	}
	return nil
}

// emptyRuntime returns an empty object and an empty list of the TrainJob's kind of runtime.
func emptyRuntime(job *trainer.TrainJob) (client.Object, client.ObjectList) {
	if ptr.Deref(job.Spec.RuntimeRef.Kind, trainer.ClusterTrainingRuntimeKind) == trainer.TrainingRuntimeKind {
		return &trainer.TrainingRuntime{}, &trainer.TrainingRuntimeList{}
	}
	return &trainer.ClusterTrainingRuntime{}, &trainer.ClusterTrainingRuntimeList{}
}

func runtimeKind(job *trainer.TrainJob) string {
	return trainerruntime.RuntimeRefToRuntimeRegistryKey(job.Spec.RuntimeRef)
}

// KindFaults returns a fault for a kind of runtime that does not exist.
func (c *Checker) KindFaults(job *trainer.TrainJob) []Fault {
	if _, ok := c.runtimes[runtimeKind(job)]; ok {
		return nil
	}
	var kinds, groups []string
	for key := range maps.Keys(c.runtimes) {
		kind, group, _ := strings.Cut(key, ".")
		kinds = append(kinds, kind)
		groups = append(groups, group)
	}
	groups = slices.Compact(slices.Sorted(slices.Values(groups)))
	var faults []Fault
	ref := job.Spec.RuntimeRef
	if kind := ptr.Deref(ref.Kind, ""); !slices.Contains(kinds, kind) {
		faults = append(faults, unsupported(runtimeRefPath.Child("kind"), kind, kinds))
	}
	if group := ptr.Deref(ref.APIGroup, ""); !slices.Contains(groups, group) {
		faults = append(faults, unsupported(runtimeRefPath.Child("apiGroup"), group, groups))
	}
	return faults
}

func unsupported(path *field.Path, value string, supported []string) Fault {
	err := field.NotSupported(path, value, slices.Sorted(slices.Values(supported)))
	err.Detail += spelling.DidYouMean(value, supported)
	return Fault{Rule: ruleRuntimeKind, Err: err}
}

// LiveRuntime returns the TrainJob's runtime, or why there is none. It asks the API server, because a cache may be
// late: users apply a runtime and a TrainJob at the same time, and the new runtime must count.
func (c *Checker) LiveRuntime(ctx context.Context, job *trainer.TrainJob) (*Runtime, []Fault, error) {
	object, list := emptyRuntime(job)
	key := types.NamespacedName{Name: job.Spec.RuntimeRef.Name}
	if _, namespaced := object.(*trainer.TrainingRuntime); namespaced {
		key.Namespace = job.Namespace
	}
	err := c.live.Get(ctx, key, object)
	switch {
	case apierrors.IsNotFound(err):
		missing, err := c.missing(ctx, job, list)
		return nil, []Fault{{Rule: ruleRuntimeFound, Err: missing}}, err
	case err != nil:
		return nil, nil, fmt.Errorf("get the runtime %q of the TrainJob: %w", key.Name, err)
	}
	return newRuntime(object), nil, nil
}

// missing says that the runtime does not exist, and lists existing runtimes.
func (c *Checker) missing(ctx context.Context, job *trainer.TrainJob, list client.ObjectList) (*field.Error, error) {
	var options []client.ListOption
	kind, where := trainer.ClusterTrainingRuntimeKind, "in the cluster"
	if _, namespaced := list.(*trainer.TrainingRuntimeList); namespaced {
		kind, where = trainer.TrainingRuntimeKind, fmt.Sprintf("in namespace %q", job.Namespace)
		options = append(options, client.InNamespace(job.Namespace))
	}
	names, err := c.names(ctx, list, options...)
	if err != nil {
		return nil, fmt.Errorf("list the runtimes that exist: %w", err)
	}
	name := job.Spec.RuntimeRef.Name
	notFound := field.NotFound(runtimeRefPath.Child("name"), name)
	notFound.Detail = fmt.Sprintf("there is no such %s; existing ones %s: %s%s%s",
		kind, where, listed(names, mostNames), spelling.DidYouMean(name, names), c.otherKind(ctx, job, kind))
	return notFound, nil
}

// otherKind says whether a runtime of this name exists and only the kind is wrong.
func (c *Checker) otherKind(ctx context.Context, job *trainer.TrainJob, kind string) string {
	key, other, object := types.NamespacedName{Namespace: job.Namespace, Name: job.Spec.RuntimeRef.Name},
		trainer.TrainingRuntimeKind, client.Object(&trainer.TrainingRuntime{})
	if kind == trainer.TrainingRuntimeKind {
		key.Namespace, other, object = "", trainer.ClusterTrainingRuntimeKind, &trainer.ClusterTrainingRuntime{}
	}
	if err := c.client.Get(ctx, key, object); err != nil {
		return ""
	}
	return fmt.Sprintf("; there is a %s %q: to use it, set spec.runtimeRef.kind", other, key.Name)
}

func (c *Checker) names(ctx context.Context, list client.ObjectList, options ...client.ListOption) ([]string, error) {
	if err := c.client.List(ctx, list, options...); err != nil {
		return nil, err
	}
	var names []string
	err := meta.EachListItem(list, func(item apiruntime.Object) error {
		object, err := meta.Accessor(item)
		if err == nil {
			names = append(names, object.GetName())
		}
		return err
	})
	return names, err
}

// CurrentRuntime returns what an existing TrainJob is built from: its snapshot, as the controller does, or its runtime.
func (c *Checker) CurrentRuntime(ctx context.Context, job *trainer.TrainJob) (*Runtime, []Fault, error) {
	snapshot, err := c.snapshot(ctx, job)
	if err != nil || snapshot != nil {
		return snapshot, nil, err
	}
	return c.LiveRuntime(ctx, job)
}

// snapshot returns the runtime of a TrainJob's snapshot, or nil. A snapshot of an earlier TrainJob does not count.
func (c *Checker) snapshot(ctx context.Context, job *trainer.TrainJob) (*Runtime, error) {
	config := &corev1.ConfigMap{}
	err := c.live.Get(ctx, types.NamespacedName{Namespace: job.Namespace, Name: trainjobs.SnapshotName(job.Name)}, config)
	if apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("get the snapshot of the TrainJob's runtime: %w", err)
	}
	content, ok := config.Data[snapshotKey]
	if !ok || !metav1.IsControlledBy(config, job) {
		return nil, nil
	}
	object, _ := emptyRuntime(job)
	if err := yaml.Unmarshal([]byte(content), object); err != nil {
		return nil, fmt.Errorf("decode the snapshot of the TrainJob's runtime: %w", err)
	}
	return newRuntime(object), nil
}
