// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/dispatch/record"
)

// Remains is what a worker has of an attempt.
type Remains int

const (
	// Nothing says: there is no TrainJob of the name. After a look at the API server also: nothing is left of the copy,
	// and nothing can come.
	Nothing Remains = iota
	// Arriving says: there is no TrainJob of the name, or a foreign one. A creation that got no answer may still make
	// ours, or the worker's controllers may still make something of ours.
	Arriving
	// Left says: the copy is gone or being deleted, and its JobSet or a Job is there, or one of its pods may run.
	Left
	// Current says: the copy of the attempt.
	Current
	// Second says: another copy of the attempt. A creation without an answer arrived when the first copy had been
	// deleted.
	Second
	// Older says: the copy of another attempt of the job, almost always an earlier one.
	Older
	// Foreign says: a TrainJob that is not ours.
	Foreign
)

// String names what there is, for logs and tests.
func (r Remains) String() string {
	return [...]string{"nothing", "arriving", "left", "current", "second", "older", "foreign"}[r]
}

// RemainsOf is the Remains of an attempt whose worker has a TrainJob of the name, by what that TrainJob is to the
// Dispatch.
func RemainsOf(relation record.Relation) Remains {
	switch relation {
	case record.Current:
		return Current
	case record.Second:
		return Second
	case record.Older, record.Later, record.Unmarked:
		return Older
	case record.Foreign:
	}
	return Foreign
}

// Gone is what is known of a copy that is gone.
type Gone struct {
	// UID of the copy. Empty: nobody knows whether a JobSet is the copy's, and only Jobs and pods count.
	UID types.UID
	// Beside is the TrainJob that has the name of the copy now, nil if there is none. Its Jobs and pods have the labels
	// that the copy's Jobs and pods have.
	Beside *unstructured.Unstructured
	// OtherJobSet is the UID of a JobSet of the name that is known not to be the copy's, empty if none is known.
	OtherJobSet types.UID
}

// HasRemains is true while the worker has a pod that may run of a copy that is gone, or the copy's JobSet or a Job of
// it, which may make one. It deletes the JobSet, and Kubernetes deletes its Jobs.
func (w Worker) HasRemains(ctx context.Context, key types.NamespacedName, gone Gone) (bool, error) {
	live, err := w.connection.APIReader()
	if err != nil {
		return false, err
	}
	jobSet, err := w.jobSet(ctx, live, key)
	if err != nil {
		return false, err
	}
	var others types.UID // of the JobSet that has the name and is not ours
	switch owner := metav1.GetControllerOfNoCopy(jobSet); {
	case owner != nil && owner.UID == gone.UID:
		if left, err := w.deleteJobSet(ctx, jobSet); left || err != nil {
			return left, err
		}
	case owner != nil && (owner.Kind != trainjobs.GroupVersionKind.Kind || gone.Beside != nil && owner.UID == gone.Beside.GetUID()),
		owner == nil && gone.OtherJobSet == jobSet.GetUID():
		others = jobSet.GetUID()
	} // Without an owner it may be an orphan of our copy: its Jobs and pods count.
	if others == "" {
		// Most often the caches show it. They cannot show that no pod is left, and keep no UIDs of JobSets.
		if left, err := w.podsLeft(ctx, w.Client, key, others); left || err != nil {
			return left, err
		}
	}
	// Jobs before pods: a Job that is gone makes no pod any more.
	if left, err := w.jobsLeft(ctx, live, key, others); left || err != nil {
		return left, err
	}
	return w.podsLeft(ctx, live, key, others)
}

// Holders says in words what keeps a copy that is being deleted, or what it has left: pods that have not ended, and
// finalizers that somebody else has set. It reads from the worker's API server. copy is nil if it is gone.
func (w Worker) Holders(ctx context.Context, key types.NamespacedName, copy *unstructured.Unstructured) (string, error) {
	live, err := w.connection.APIReader()
	if err != nil {
		return "", err
	}
	jobSet, err := w.jobSet(ctx, live, key)
	if err != nil {
		return "", err
	}
	var pods corev1.PodList
	err = live.List(ctx, &pods, append(ofJobSet(key), client.Limit(mostHolders))...)
	if err != nil && !apierrors.IsForbidden(err) {
		return "", fmt.Errorf("list pods of TrainJob %s on worker %q: %w", key, w.Name, err)
	}
	return holders(copy, jobSet, pods.Items), nil
}

// mostHolders is how many pods are read to name one that has not ended.
const mostHolders = 500

// holders is Holders for what was read. It has no times and no counts, so that it changes only with the cause.
func holders(copy, jobSet *unstructured.Unstructured, pods []corev1.Pod) string {
	var parts []string
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	pods = slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return !IsAlive(pod) && len(foreignFinalizers(&pod)) == 0 })
	if len(pods) > 0 {
		parts = append(parts, podWords(&pods[0]))
		if len(pods) > 1 {
			parts[0] = "pods have not ended, such as " + strings.TrimPrefix(parts[0], "pod ")
		}
	}
	if copy != nil {
		if found := foreignFinalizers(copy); len(found) > 0 {
			parts = append(parts, fmt.Sprintf("the copy has the finalizer %s, which whoever has set it removes", strings.Join(found, ", ")))
		}
	}
	if found := foreignFinalizers(jobSet); len(found) > 0 {
		parts = append(parts, fmt.Sprintf("its JobSet has the finalizer %s, which whoever has set it removes", strings.Join(found, ", ")))
	}
	switch {
	case len(parts) > 0:
	case jobSet.GetUID() != "" && jobSet.GetDeletionTimestamp() == nil:
		parts = append(parts, "the worker's garbage collector has not deleted its JobSet")
	case copy != nil || jobSet.GetUID() != "":
		parts = append(parts, "the worker's garbage collector has not removed it")
	}
	return strings.Join(parts, "; ")
}

// podWords says why a pod has not ended.
func podWords(pod *corev1.Pod) string {
	words := "pod " + pod.Name
	if pod.Spec.NodeName != "" {
		words += fmt.Sprintf(" on node %s", pod.Spec.NodeName)
	}
	switch found := foreignFinalizers(pod); {
	case !IsAlive(*pod):
		return fmt.Sprintf("%s has the finalizer %s", words, strings.Join(found, ", "))
	case pod.DeletionTimestamp == nil:
		return words + ", which nobody has told to stop"
	default:
		return fmt.Sprintf("%s, which has %d s to stop (terminationGracePeriodSeconds); if it takes longer, look at the node", words,
			ptr.Deref(pod.DeletionGracePeriodSeconds, 0))
	}
}

// foreignFinalizers are the finalizers of an object that neither Kubernetes' garbage collector nor its Job controller
// removes.
func foreignFinalizers(object client.Object) []string {
	return slices.DeleteFunc(slices.Clone(object.GetFinalizers()), func(finalizer string) bool {
		return finalizer == metav1.FinalizerDeleteDependents || finalizer == metav1.FinalizerOrphanDependents ||
			finalizer == batchv1.JobTrackingFinalizer
	})
}

// podsLeft is true while a JobSet of the name, but not the JobSet with the UID others, has a pod that may run.
func (w Worker) podsLeft(
	ctx context.Context, reader client.Reader, key types.NamespacedName, others types.UID,
) (bool, error) {
	var pods corev1.PodList
	if err := reader.List(ctx, &pods, ofJobSet(key)...); err != nil {
		return false, fmt.Errorf("list pods of TrainJob %s on worker %q: %w", key, w.Name, err)
	}
	return slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return IsAlive(pod) && !isOf(&pod, others) }), nil
}

// jobsLeft is podsLeft for Jobs that may make a pod. The garbage collector may delete a JobSet before it knows of a Job
// that the JobSet has just got, and that Job may still make pods. A suspended Job does not count: without its JobSet
// nobody resumes it. A hub that may not read Jobs there looks at pods only.
func (w Worker) jobsLeft(
	ctx context.Context, live client.Reader, key types.NamespacedName, others types.UID,
) (bool, error) {
	var jobs batchv1.JobList
	switch err := live.List(ctx, &jobs, ofJobSet(key)...); {
	case apierrors.IsForbidden(err), meta.IsNoMatchError(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("list Jobs of TrainJob %s on worker %q: %w", key, w.Name, err)
	}
	return slices.ContainsFunc(jobs.Items, func(job batchv1.Job) bool { return mayMakePods(job) && !isOf(&job, others) }), nil
}

// ofJobSet selects what the JobSet of a name has made.
func ofJobSet(key types.NamespacedName) []client.ListOption {
	return []client.ListOption{client.InNamespace(key.Namespace), client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: key.Name}}
}

// isOf is true for what the JobSet with this UID has made. No JobSet has the UID "".
func isOf(object client.Object, jobSet types.UID) bool {
	return jobSet != "" && object.GetLabels()[jobsetv1alpha2.JobSetUIDKey] == string(jobSet)
}

// mayMakePods is true for a Job that is neither suspended nor Complete or Failed.
func mayMakePods(job batchv1.Job) bool {
	return !ptr.Deref(job.Spec.Suspend, false) && !slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
	})
}

// IsAlive is true for a pod that runs, or may run.
func IsAlive(pod corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// jobSet returns the JobSet of a name. It is empty if there is none, or the hub may not read JobSets: then the hub looks
// at Jobs and pods only, and all of the name count as the copy's.
func (w Worker) jobSet(ctx context.Context, live client.Reader, key types.NamespacedName) (*unstructured.Unstructured, error) {
	jobSet := trainjobs.NewJobSet()
	err := live.Get(ctx, key, jobSet)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || meta.IsNoMatchError(err) {
		return trainjobs.NewJobSet(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("get JobSet %s on worker %q: %w", key, w.Name, err)
	}
	return jobSet, nil
}

// deleteJobSet deletes the JobSet of a copy that is gone, and returns true. A copy that is deleted in the background
// leaves its JobSet to the garbage collector, which may forget it, and the JobSet may still make pods. If the hub may not
// delete JobSets there, it returns false.
func (w Worker) deleteJobSet(ctx context.Context, jobSet *unstructured.Unstructured) (bool, error) {
	if jobSet.GetDeletionTimestamp() != nil {
		return true, nil
	}
	uid := jobSet.GetUID()
	err := w.Delete(ctx, jobSet, client.PropagationPolicy(metav1.DeletePropagationForeground), client.Preconditions{UID: &uid})
	switch {
	case apierrors.IsForbidden(err):
		return false, nil
	case client.IgnoreNotFound(err) != nil:
		return false, fmt.Errorf("delete JobSet %s on worker %q: %w", client.ObjectKeyFromObject(jobSet), w.Name, err)
	}
	return true, nil
}
