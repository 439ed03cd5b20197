// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package copies

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

	"github.com/trainyard/trainyard/api/trainjobs"
)

// Remains is true while the worker has a pod that may run of a copy that is gone, or the copy's JobSet, which may make
// one. It deletes the JobSet. uid is the UID of the copy. If uid is empty, nobody knows whose JobSet there is, and only
// pods count. beside is the TrainJob that has the name of the copy now, nil if there is none. Its pods have the names
// of the copy's pods.
func (w Worker) Remains(
	ctx context.Context, key types.NamespacedName, uid types.UID, beside *unstructured.Unstructured,
) (bool, error) {
	live, err := w.connection.APIReader()
	if err != nil {
		return false, err
	}
	if uid != "" {
		if left, err := w.jobSetLeft(ctx, live, key, uid); left || err != nil {
			return left, err
		}
	}
	var reader client.Reader = w.Client
	var others types.UID
	if beside != nil {
		reader = live // The cache keeps of a pod only what is needed for counting.
		others = jobSetOf(ctx, live, beside)
	}
	var pods corev1.PodList
	ofName := client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: key.Name}
	err = reader.List(ctx, &pods, client.InNamespace(key.Namespace), ofName)
	if err != nil {
		return false, fmt.Errorf("list pods of TrainJob %s on worker %q: %w", key, w.Name, err)
	}
	for i := range pods.Items {
		owner := types.UID(pods.Items[i].Labels[jobsetv1alpha2.JobSetUIDKey])
		if IsAlive(pods.Items[i]) && (owner == "" || owner != others) {
			return true, nil
		}
	}
	return false, nil
}

// IsAlive is true for a pod that runs, or may run.
func IsAlive(pod corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// jobSetLeft is true while the worker has the JobSet of the copy, and deletes the JobSet. A copy that is deleted in the
// background leaves its JobSet to the garbage collector, which may forget it, and the JobSet may still make pods. A hub
// that may not read or delete JobSets there looks at pods only.
func (w Worker) jobSetLeft(
	ctx context.Context, live client.Reader, key types.NamespacedName, uid types.UID,
) (bool, error) {
	jobSet := trainjobs.NewJobSet()
	err := live.Get(ctx, key, jobSet)
	switch owner := metav1.GetControllerOfNoCopy(jobSet); {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), meta.IsNoMatchError(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("get JobSet %s on worker %q: %w", key, w.Name, err)
	case owner == nil || owner.UID != uid:
		return false, nil
	case jobSet.GetDeletionTimestamp() != nil:
		return true, nil
	}
	jobSetUID := jobSet.GetUID()
	foreground := client.PropagationPolicy(metav1.DeletePropagationForeground)
	err = w.Delete(ctx, jobSet, foreground, client.Preconditions{UID: &jobSetUID})
	switch {
	case apierrors.IsForbidden(err):
		return false, nil
	case client.IgnoreNotFound(err) != nil:
		return false, fmt.Errorf("delete JobSet %s on worker %q: %w", key, w.Name, err)
	}
	return true, nil
}

// jobSetOf is the UID of a TrainJob's JobSet. It is empty if the JobSet cannot be read: then the TrainJob's pods count
// as the copy's.
func jobSetOf(ctx context.Context, live client.Reader, job *unstructured.Unstructured) types.UID {
	jobSet := trainjobs.NewJobSet()
	if err := live.Get(ctx, client.ObjectKeyFromObject(job), jobSet); err != nil || !metav1.IsControlledBy(jobSet, job) {
		return ""
	}
	return jobSet.GetUID()
}
