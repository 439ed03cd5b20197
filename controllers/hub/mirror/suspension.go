// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

const (
	// labelJobUID on a Workload of Kueue is the UID of the job that the Workload is for.
	labelJobUID = "kueue.x-k8s.io/job-uid"
	// workloadCheck is how often, and workloadLag for how long, the mirror looks for the Workload of a suspended copy.
	workloadLag   = 30 * time.Second
	workloadCheck = time.Second
)

// workloadKind is Kueue's record of a job that Kueue queues, in whichever version the worker serves.
var workloadKind = schema.GroupKind{Group: "kueue.x-k8s.io", Kind: "Workload"}

// hold is why a copy does not run although its job may.
type hold int

const (
	// free: nothing holds the copy.
	free hold = iota
	// fenced: the worker's agent has stopped the copy, and may not let it run now.
	fenced
	// resumable: the worker's agent has stopped the copy, and lets it run now.
	resumable
	// resumedByQueue is resumable, for a copy that is not suspended, or whose suspension is up to the worker's Kueue.
	resumedByQueue
	// queued: the worker's Kueue has suspended the copy.
	queued
	// unknown: somebody has suspended the copy. It may be Kueue, whose Workload is not there yet.
	unknown
	// suspendedThere: somebody on the worker has suspended the copy.
	suspendedThere
)

// ends is true for what the hub ends now.
func (h hold) ends() bool { return h == resumable || h == resumedByQueue || h == suspendedThere }

// suspension is what this process knows of the suspension of a copy.
type suspension struct {
	// queued is true once the worker's Kueue had a Workload for the copy. A Workload stays as long as its job.
	queued bool
	// unexplained measures since when the copy has been suspended without a Workload.
	unexplained stopwatch
}

// holdOf says why the copy does not run. It asks the worker only if the copy is suspended and has no known Workload.
func (k keeper) holdOf(ctx context.Context, may permission) (hold, error) {
	stopped := k.isStopped()
	switch {
	case trainjobs.Suspended(k.job): // Placement ends the attempt.
		return free, nil
	case stopped && !may.ok:
		return fenced, nil
	case !trainjobs.Suspended(k.copy):
		k.attempt.suspension.unexplained.reset()
		if stopped {
			return resumedByQueue, nil
		}
		return free, nil
	}
	owner, err := k.suspensionOf(ctx)
	switch {
	case err != nil || !stopped:
		return owner, err
	case owner == queued:
		return resumedByQueue, nil
	}
	return resumable, nil
}

// suspensionOf says who has suspended the copy: queued, unknown or suspendedThere.
func (k keeper) suspensionOf(ctx context.Context) (hold, error) {
	hasKueue, hasWorkload, err := k.findWorkload(ctx, k.copy)
	switch {
	case err != nil:
		return free, err
	case hasWorkload:
		return queued, nil
	case hasKueue && k.attempt.suspension.unexplained.elapsed(k.Clock.Now()) < workloadLag:
		return unknown, nil
	}
	return suspendedThere, nil
}

// findWorkload asks the worker for its Kueue and, until it is found, for the copy's Workload. Where Workloads may not
// be read, the copy is taken to have one: it does less harm to leave a suspension that is not Kueue's than to have two
// systems undo each other's writes.
func (k keeper) findWorkload(ctx context.Context, copy *unstructured.Unstructured) (hasKueue, hasWorkload bool, err error) {
	if k.attempt.suspension.queued {
		return true, true, nil
	}
	defer func() { k.attempt.suspension.queued = hasWorkload }()
	mapping, err := k.worker.RESTMapper().RESTMapping(workloadKind)
	if meta.IsNoMatchError(err) {
		return false, false, nil
	}
	if err != nil {
		return false, false, fmt.Errorf("look for Kueue on worker %q: %w", k.Cluster, err)
	}
	live, err := k.Worker.APIReader()
	if err != nil {
		return false, false, err
	}
	workloads := &metav1.PartialObjectMetadataList{}
	workloads.SetGroupVersionKind(mapping.GroupVersionKind)
	err = live.List(ctx, workloads, client.InNamespace(copy.GetNamespace()), client.MatchingLabels{labelJobUID: string(copy.GetUID())}, client.Limit(1))
	switch {
	case apierrors.IsForbidden(err):
		return true, true, nil
	case apierrors.IsNotFound(err): // Kueue has been removed.
		return false, false, nil
	case err != nil:
		return true, false, fmt.Errorf("list Workloads of TrainJob %s/%s on worker %q: %w", copy.GetNamespace(), copy.GetName(), k.Cluster, err)
	}
	ours := func(workload metav1.PartialObjectMetadata) bool { return metav1.IsControlledBy(&workload, copy) }
	return true, slices.ContainsFunc(workloads.Items, ours), nil
}

// resume lets the copy go on, as far as it may, and returns the names of what somebody on the worker had changed. A
// fenced copy gets the last challenge: by that the agent knows a resumption, like a creation, that took too long.
func resume(copy *unstructured.Unstructured, why hold, may permission) (restored []string) {
	if !why.ends() {
		return nil
	}
	setAnnotation(copy, v1alpha1.AnnotationFenced, "")
	if why == suspendedThere {
		restored = []string{"spec.suspend"}
	}
	if why != resumedByQueue {
		copy.Object["spec"].(map[string]any)["suspend"] = false
	}
	if may.fenced && may.challenge != "" {
		setAnnotation(copy, v1alpha1.AnnotationChallenge, may.challenge)
	}
	return restored
}
