// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// podsAlive is true while the worker has a pod of the job that may run, or the JobSet of the copy, which may make one. Beside is a TrainJob
// that has the name of the copy by now, nil if there is none: its pods have the names of ours.
func (r *reconciler) podsAlive(ctx context.Context, worker client.Client, f facts, beside *unstructured.Unstructured) (bool, error) {
	if left, err := r.jobSetLeft(ctx, worker, f); left || err != nil {
		return left, err
	}
	var reader client.Reader = worker
	var others types.UID
	if beside != nil {
		var err error
		if reader, err = r.Worker.APIReader(); err != nil { // The cache keeps of a pod only what is needed for counting.
			return false, err
		}
		others = jobSetOf(ctx, reader, beside)
	}
	var pods corev1.PodList
	err := reader.List(ctx, &pods, client.InNamespace(f.dispatch.Namespace), client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: f.dispatch.Name})
	if err != nil {
		return false, fmt.Errorf("list pods of TrainJob %s/%s on worker %q: %w", f.dispatch.Namespace, f.dispatch.Name, r.Cluster, err)
	}
	for i := range pods.Items {
		phase, owner := pods.Items[i].Status.Phase, types.UID(pods.Items[i].Labels[jobsetv1alpha2.JobSetUIDKey])
		if phase != corev1.PodSucceeded && phase != corev1.PodFailed && (owner == "" || owner != others) {
			return true, nil
		}
	}
	return false, nil
}

// jobSetLeft is true while the worker has the JobSet of the copy. Who deletes a copy in the background leaves the JobSet until the garbage
// collector comes, and the JobSet may have yet to make its pods. The garbage collector may also have forgotten it, so it is deleted
// here. A hub that may not read or delete JobSets there looks at pods only.
func (r *reconciler) jobSetLeft(ctx context.Context, worker client.Client, f facts) (bool, error) {
	reader, err := r.Worker.APIReader()
	if err != nil || f.knownUID() == "" {
		return false, err
	}
	jobSet := newJobSet()
	err = reader.Get(ctx, client.ObjectKeyFromObject(f.dispatch), jobSet)
	switch owner := metav1.GetControllerOfNoCopy(jobSet); {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), meta.IsNoMatchError(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("get JobSet %s/%s on worker %q: %w", f.dispatch.Namespace, f.dispatch.Name, r.Cluster, err)
	case owner == nil || owner.UID != f.knownUID():
		return false, nil
	case jobSet.GetDeletionTimestamp() != nil:
		return true, nil
	}
	uid := jobSet.GetUID()
	err = worker.Delete(ctx, jobSet, client.PropagationPolicy(metav1.DeletePropagationForeground), client.Preconditions{UID: &uid})
	switch {
	case apierrors.IsForbidden(err):
		return false, nil
	case client.IgnoreNotFound(err) != nil:
		return false, fmt.Errorf("delete JobSet %s/%s on worker %q: %w", f.dispatch.Namespace, f.dispatch.Name, r.Cluster, err)
	}
	return true, nil
}

// jobSetOf is the UID of a TrainJob's JobSet. It is empty if that is not there or cannot be read: then all pods count as ours.
func jobSetOf(ctx context.Context, reader client.Reader, job *unstructured.Unstructured) types.UID {
	jobSet := newJobSet()
	if err := reader.Get(ctx, client.ObjectKeyFromObject(job), jobSet); err != nil || !metav1.IsControlledBy(jobSet, job) {
		return ""
	}
	return jobSet.GetUID()
}
