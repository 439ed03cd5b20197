// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
)

const fieldOwner = client.FieldOwner(trainjobs.FieldOwner)

// Clients are the two views of a cluster that a Reconciler needs.
type Clients struct {
	// Cached reads from the cache and writes to the API server.
	Cached client.Client
	// Live reads from the API server.
	Live client.Reader
}

// jobsOf reads the Jobs of JobSets with this name. It asks the API server: this is rare, and Jobs are not watched.
func (c Clients) jobsOf(ctx context.Context, jobSet types.NamespacedName) ([]batchv1.Job, error) {
	var jobs batchv1.JobList
	err := c.Live.List(ctx, &jobs, client.InNamespace(jobSet.Namespace), client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: jobSet.Name})
	if err != nil {
		return nil, fmt.Errorf("list Jobs of JobSet %s: %w", jobSet, err)
	}
	return jobs.Items, nil
}

// unfinishedJobs returns the Jobs that this JobSet controls and that can still have pods.
func (c Clients) unfinishedJobs(ctx context.Context, jobSet *jobsetv1alpha2.JobSet) ([]*batchv1.Job, error) {
	all, err := c.jobsOf(ctx, client.ObjectKeyFromObject(jobSet))
	if err != nil {
		return nil, err
	}
	var jobs []*batchv1.Job
	for i := range all {
		if !isFinished(&all[i]) && metav1.IsControlledBy(&all[i], jobSet) {
			jobs = append(jobs, &all[i])
		}
	}
	return jobs, nil
}

func (c Clients) apply(ctx context.Context, job *trainer.TrainJob, object apiruntime.ApplyConfiguration) error {
	if err := c.Cached.Apply(ctx, object, fieldOwner, client.ForceOwnership); err != nil {
		kind := kindOf(object)
		err = fmt.Errorf("apply %s of TrainJob %s: %w", kind, klog.KObj(job), err)
		return &problem{reason: ReasonApplyFailed, action: "Apply" + kind, err: err}
	}
	return nil
}

// suspendJobSet suspends a JobSet and changes nothing else.
func (c Clients) suspendJobSet(ctx context.Context, jobSet *jobsetv1alpha2.JobSet) error {
	if ptr.Deref(jobSet.Spec.Suspend, false) {
		return nil
	}
	patch := client.RawPatch(types.MergePatchType, []byte(fmt.Sprintf(`{"metadata":{"uid":%q},"spec":{"suspend":true}}`, jobSet.UID)))
	if err := c.Cached.Patch(ctx, jobSet.DeepCopy(), patch, fieldOwner); err != nil {
		return fmt.Errorf("suspend JobSet %s: %w", klog.KObj(jobSet), err)
	}
	return nil
}

// keepJobSet takes the TTL from the JobSet of a copy. An earlier agent, or another controller, may have made the JobSet.
// JobSet's webhook lets it be changed while pods run.
func (c Clients) keepJobSet(ctx context.Context, jobSet *jobsetv1alpha2.JobSet) error {
	patch := client.RawPatch(types.MergePatchType,
		[]byte(fmt.Sprintf(`{"metadata":{"uid":%q},"spec":{"ttlSecondsAfterFinished":null}}`, jobSet.UID)))
	if err := c.Cached.Patch(ctx, jobSet.DeepCopy(), patch, fieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("take the TTL from JobSet %s: %w", klog.KObj(jobSet), err)
	}
	return nil
}

// deleteJobSet deletes the JobSet. An event says when it is gone.
func (c Clients) deleteJobSet(ctx context.Context, jobSet *jobsetv1alpha2.JobSet) error {
	if err := c.deleteOwner(ctx, jobSet); err != nil {
		return fmt.Errorf("delete JobSet %s: %w", klog.KObj(jobSet), err)
	}
	return nil
}

// deleteOwner deletes the object with this UID, if it exists. The garbage collector deletes what the object owns.
func (c Clients) deleteOwner(ctx context.Context, object client.Object) error {
	uid := object.GetUID()
	err := c.Cached.Delete(ctx, object, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	return client.IgnoreNotFound(err)
}

// deleteTrainJob deletes in the foreground, so that a new TrainJob of the same name never meets the old JobSet.
func (c Clients) deleteTrainJob(ctx context.Context, job *trainer.TrainJob) error {
	err := c.Cached.Delete(ctx, job, client.Preconditions{UID: &job.UID, ResourceVersion: &job.ResourceVersion},
		client.PropagationPolicy(metav1.DeletePropagationForeground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete TrainJob %s after its TTL: %w", klog.KObj(job), err)
	}
	ctrl.LoggerFrom(ctx).Info("Deleted TrainJob after its TTL")
	return nil
}

// writeStatus writes the decided status of a TrainJob, if it changed.
//
// The patch names the resource version that was read. A merge patch replaces the whole list of conditions: without the
// version, it could remove a condition that another writer has added meanwhile.
func (c Clients) writeStatus(ctx context.Context, job *trainer.TrainJob, status trainer.TrainJobStatus) error {
	if equality.Semantic.DeepEqual(job.Status, status) {
		return nil
	}
	changed := job.DeepCopy()
	changed.Status = status
	patch := client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})
	if err := c.Cached.Status().Patch(ctx, changed, patch); err != nil {
		return fmt.Errorf("patch status of TrainJob %s: %w", klog.KObj(job), err)
	}
	return nil
}
