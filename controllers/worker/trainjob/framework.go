// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
)

// framework is the runtime framework of the Kubeflow Trainer.
type framework struct {
	runtimes map[string]trainerruntime.Runtime
	// kinds are the kinds of runtime that exist, as "Kind.group", sorted.
	kinds []string
	// reader reads the snapshots of runtimes that the framework has written.
	reader client.Reader
}

func newFramework(runtimes map[string]trainerruntime.Runtime, reader client.Reader) *framework {
	return &framework{runtimes: runtimes, kinds: slices.Sorted(maps.Keys(runtimes)), reader: reader}
}

func (fw *framework) watch(b *builder.Builder, mgr ctrl.Manager) *builder.Builder {
	for _, runtime := range fw.runtimes {
		for _, register := range runtime.EventHandlerRegistrars() {
			if register != nil {
				b = register(b, mgr.GetClient(), mgr.GetCache())
			}
		}
	}
	return b
}

// status derives a TrainJob's status from its JobSet, by method Status of the trainer module's plugin jobset. It
// returns nil for an unknown kind of runtime.
func (fw *framework) status(ctx context.Context, job *trainer.TrainJob) (*trainer.TrainJobStatus, error) {
	runtime, ok := fw.runtimes[runtimeKind(job)]
	if !ok {
		return nil, nil
	}
	return runtime.TrainJobStatus(ctx, job)
}

// newObjects asks the runtime framework for the TrainJob's objects. The framework also writes the runtime's snapshot.
//
// The framework dereferences optional fields without a check (Flux: spec.trainer.numNodes, MPI: a runtime without
// defaults). So newObjects recovers from a panic. The cause is the data of one job, and the job's owner should see it.
func (fw *framework) newObjects(ctx context.Context, job *trainer.TrainJob) (objects []apiruntime.ApplyConfiguration, err error) {
	defer func() {
		if p := recover(); p != nil {
			ctrl.LoggerFrom(ctx).Error(nil, "Runtime framework panicked", "panic", p, "stack", string(debug.Stack()))
			err = &problem{reason: ReasonBuildFailed, action: "Build", err: fmt.Errorf(
				"build objects of TrainJob %s: the runtime framework panicked, is a field missing in the TrainJob or its runtime? %v",
				klog.KObj(job), p)}
		}
	}()
	objects, err = fw.runtimes[runtimeKind(job)].NewObjects(ctx, job.DeepCopy())
	if err == nil {
		return objects, nil
	}
	if snapshot, err := fw.predecessorsSnapshot(ctx, job); err == nil && snapshot != nil {
		return nil, errPredecessor
	}
	p := &problem{reason: ReasonBuildFailed, action: "Build", err: fmt.Errorf("build objects of TrainJob %s: %w", klog.KObj(job), err)}
	if isRuntimeNotFound(err, job.Spec.RuntimeRef) {
		p.reason = ReasonRuntimeNotFound
	}
	return nil, p
}

// predecessorsSnapshot returns the snapshot of an earlier TrainJob's runtime, or nil. A build waits for its deletion.
func (fw *framework) predecessorsSnapshot(ctx context.Context, job *trainer.TrainJob) (*corev1.ConfigMap, error) {
	key := client.ObjectKey{Namespace: job.Namespace, Name: trainjobs.SnapshotName(job.Name)}
	snapshot := &corev1.ConfigMap{}
	if err := fw.reader.Get(ctx, key, snapshot); err != nil || !isPredecessors(snapshot, job) {
		return nil, client.IgnoreNotFound(err)
	}
	return snapshot, nil
}

// isRuntimeNotFound says whether err is about a missing runtime, and not about another missing object such as a CRD.
func isRuntimeNotFound(err error, ref trainer.RuntimeRef) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Group == ptr.Deref(ref.APIGroup, "") && details.Name == ref.Name
}
