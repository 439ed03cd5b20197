// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"
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
	// workloadLag is how long a worker's Kueue has for making the Workload of a copy that it has suspended. workloadCheck is how often
	// the mirror looks for the Workload meanwhile.
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

// holdOf says why the copy does not run. It asks the worker only about a copy that is suspended and of which no Workload is known. It
// returns when to look again, zero if nothing is awaited.
func (r *reconciler) holdOf(ctx context.Context, f facts, past *recollection, may permission) (hold, time.Duration, error) {
	_, stopped := f.copy.GetAnnotations()[v1alpha1.AnnotationFenced]
	switch {
	case trainjobs.Suspended(f.job): // Placement ends the attempt.
		return free, 0, nil
	case stopped && !may.ok:
		return fenced, 0, nil
	case !trainjobs.Suspended(f.copy):
		past.suspendedAt = time.Time{}
		if stopped {
			return resumedByQueue, 0, nil
		}
		return free, 0, nil
	}
	owner, err := r.suspensionOf(ctx, f.copy, past)
	if err != nil {
		return free, 0, err
	}
	switch {
	case owner == queued && stopped:
		return resumedByQueue, 0, nil
	case stopped:
		return resumable, 0, nil
	case owner == unknown:
		return unknown, workloadCheck, nil
	}
	return owner, 0, nil
}

// suspensionOf says who has suspended a copy: queued, unknown or suspendedThere.
func (r *reconciler) suspensionOf(ctx context.Context, copy *unstructured.Unstructured, past *recollection) (hold, error) {
	if past.queued {
		return queued, nil
	}
	hasKueue, hasWorkload, err := r.findWorkload(ctx, copy)
	switch {
	case err != nil:
		return free, err
	case hasWorkload:
		past.queued = true // A Workload stays as long as its job.
		return queued, nil
	case !hasKueue:
		return suspendedThere, nil
	}
	if past.suspendedAt.IsZero() {
		past.suspendedAt = r.Clock.Now()
	}
	if r.Clock.Since(past.suspendedAt) < workloadLag {
		return unknown, nil
	}
	return suspendedThere, nil
}

// findWorkload asks the worker whether it has a Kueue, and whether that has a Workload for the copy. Where Workloads may not be read, a
// copy is taken to have one: a suspension that is not Kueue's does less harm than two systems that undo each other's writes.
func (r *reconciler) findWorkload(ctx context.Context, copy *unstructured.Unstructured) (hasKueue, hasWorkload bool, err error) {
	worker, err := r.Worker.Client()
	if err != nil {
		return false, false, err
	}
	mapping, err := worker.RESTMapper().RESTMapping(workloadKind)
	if meta.IsNoMatchError(err) {
		return false, false, nil
	}
	if err != nil {
		return false, false, fmt.Errorf("look for Kueue on worker %q: %w", r.Cluster, err)
	}
	reader, err := r.Worker.APIReader()
	if err != nil {
		return false, false, err
	}
	workloads := &metav1.PartialObjectMetadataList{}
	workloads.SetGroupVersionKind(mapping.GroupVersionKind)
	err = reader.List(ctx, workloads, client.InNamespace(copy.GetNamespace()), client.MatchingLabels{labelJobUID: string(copy.GetUID())}, client.Limit(1))
	switch {
	case apierrors.IsForbidden(err):
		return true, true, nil
	case apierrors.IsNotFound(err): // Kueue has been removed.
		return false, false, nil
	case err != nil:
		return true, false, fmt.Errorf("list Workloads of TrainJob %s/%s on worker %q: %w", copy.GetNamespace(), copy.GetName(), r.Cluster, err)
	}
	for i := range workloads.Items {
		if metav1.IsControlledBy(&workloads.Items[i], copy) {
			return true, true, nil
		}
	}
	return true, false, nil
}

// resume changes the copy so that it goes on, as far as it may, and returns the names of what somebody on the worker had changed. Whatever
// resumes a copy that is to be fenced brings the last challenge with it: a resumption that was on its way for too long is known by
// that, as a creation is.
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

// isHeld is true for a copy that its worker keeps suspended although its job may run.
func isHeld(f facts) bool {
	_, stopped := f.copy.GetAnnotations()[v1alpha1.AnnotationFenced]
	return trainjobs.Suspended(f.copy) && !trainjobs.Suspended(f.job) && !stopped
}
