// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// endCheck is how often the mirror looks whether pods have ended, if their end causes no event here.
const endCheck = time.Second

// finding is the answer of a look at the worker's API server.
type finding struct {
	presence
	// copy is the TrainJob of the name, nil if there is none.
	copy *unstructured.Unstructured
	// wait is for how long a creation may still arrive.
	wait time.Duration
}

// lookFor asks the worker's API server what there is of the attempt. A cache proves no absence: its watch may lag, and
// a copy that has lost our label is not in it. The attempt may end only if the answer is nothing or foreign.
func (v *visit) lookFor(ctx context.Context) (finding, error) {
	found, err := v.lookForCopy(ctx)
	if err != nil || found.presence != nothing && found.presence != foreign {
		return found, err
	}
	if found.presence == foreign && !v.wasCopied() {
		return found, nil // The foreign TrainJob has kept ours from being created.
	}
	alive, err := v.podsAlive(ctx, found.copy)
	if alive {
		found.presence = podsAlive
	}
	return found, err
}

// lookForCopy is lookFor without the look at pods.
func (v *visit) lookForCopy(ctx context.Context) (finding, error) {
	wait := v.mayArrive() // Before the request: a creation that arrives between the two is not overlooked.
	copy, err := v.find(ctx)
	found := finding{presence: v.presenceOf(copy), copy: copy}
	if wait > 0 && (copy == nil || found.presence == foreign) { // A foreign TrainJob may go before the creation arrives.
		found.presence, found.wait = arriving, wait
	}
	return found, err
}

// mayArrive is for how long a creation of the copy may still be carried out.
func (v *visit) mayArrive() time.Duration {
	return v.attempt.creation.unanswered.mayArrive(v.wasCopied(), v.Clock.Now())
}

// find asks the worker's API server for the TrainJob of the Dispatch's name, nil if there is none.
func (v *visit) find(ctx context.Context) (*unstructured.Unstructured, error) {
	live, err := v.Worker.APIReader()
	if err != nil {
		return nil, err
	}
	existing, err := get(ctx, live, client.ObjectKeyFromObject(v.dispatch))
	if err != nil {
		return nil, fmt.Errorf("get TrainJob %s/%s on worker %q: %w", v.dispatch.Namespace, v.dispatch.Name, v.Cluster, err)
	}
	return existing, nil
}

// podsAlive is true while the worker has a pod of the job that may run, or the JobSet of the copy, which may make one.
// beside is the TrainJob that has the name of the copy now, nil if there is none: its pods have the names of ours.
func (v *visit) podsAlive(ctx context.Context, beside *unstructured.Unstructured) (bool, error) {
	if left, err := v.jobSetLeft(ctx); left || err != nil {
		return left, err
	}
	var reader client.Reader = v.worker
	var others types.UID
	if beside != nil {
		var err error
		if reader, err = v.Worker.APIReader(); err != nil { // The cache keeps of a pod only what is needed for counting.
			return false, err
		}
		others = jobSetOf(ctx, reader, beside)
	}
	var pods corev1.PodList
	err := reader.List(ctx, &pods, client.InNamespace(v.dispatch.Namespace), client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: v.dispatch.Name})
	if err != nil {
		return false, fmt.Errorf("list pods of TrainJob %s/%s on worker %q: %w", v.dispatch.Namespace, v.dispatch.Name, v.Cluster, err)
	}
	for i := range pods.Items {
		phase, owner := pods.Items[i].Status.Phase, types.UID(pods.Items[i].Labels[jobsetv1alpha2.JobSetUIDKey])
		if phase != corev1.PodSucceeded && phase != corev1.PodFailed && (owner == "" || owner != others) {
			return true, nil
		}
	}
	return false, nil
}

// jobSetLeft is true while the worker has the JobSet of the copy, and deletes the JobSet. A copy that is deleted in the
// background leaves its JobSet to the garbage collector, which may forget it, and the JobSet may still make pods. A hub
// that may not read or delete JobSets there looks at pods only.
func (v *visit) jobSetLeft(ctx context.Context) (bool, error) {
	reader, err := v.Worker.APIReader()
	if err != nil || v.knownUID() == "" {
		return false, err
	}
	jobSet := newJobSet()
	err = reader.Get(ctx, client.ObjectKeyFromObject(v.dispatch), jobSet)
	switch owner := metav1.GetControllerOfNoCopy(jobSet); {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), meta.IsNoMatchError(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("get JobSet %s/%s on worker %q: %w", v.dispatch.Namespace, v.dispatch.Name, v.Cluster, err)
	case owner == nil || owner.UID != v.knownUID():
		return false, nil
	case jobSet.GetDeletionTimestamp() != nil:
		return true, nil
	}
	uid := jobSet.GetUID()
	err = v.worker.Delete(ctx, jobSet, client.PropagationPolicy(metav1.DeletePropagationForeground), client.Preconditions{UID: &uid})
	switch {
	case apierrors.IsForbidden(err):
		return false, nil
	case client.IgnoreNotFound(err) != nil:
		return false, fmt.Errorf("delete JobSet %s/%s on worker %q: %w", v.dispatch.Namespace, v.dispatch.Name, v.Cluster, err)
	}
	return true, nil
}

// jobSetOf is the UID of a TrainJob's JobSet. It is empty if the JobSet cannot be read: then all pods count as ours.
func jobSetOf(ctx context.Context, reader client.Reader, job *unstructured.Unstructured) types.UID {
	jobSet := newJobSet()
	if err := reader.Get(ctx, client.ObjectKeyFromObject(job), jobSet); err != nil || !metav1.IsControlledBy(jobSet, job) {
		return ""
	}
	return jobSet.GetUID()
}
