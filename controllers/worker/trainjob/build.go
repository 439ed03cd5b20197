// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapply "sigs.k8s.io/jobset/client-go/applyconfiguration/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/controllers/worker/trainjob/health"
)

const (
	fieldOwner = client.FieldOwner(trainjobs.FieldOwner)

	jobSetKind = "JobSet"
)

// errPredecessor: objects of an earlier TrainJob of the same name still exist.
var errPredecessor = errors.New("waiting for the objects of an earlier TrainJob of the same name to be garbage-collected")

// errPodsLeft: pods of an earlier JobSet may still run. Pods of a new JobSet would have the same host names.
var errPodsLeft = errors.New("waiting for the pods of an earlier JobSet of the same name to end")

// errEarlierJobs: Jobs of an earlier JobSet of the same name may still make pods.
var errEarlierJobs = errors.New("waiting for the Jobs of an earlier JobSet of the same name to be garbage-collected")

// build makes the TrainJob's objects and applies them. It applies the JobSet last, because its pods need the others. It
// does nothing if neither the TrainJob nor its objects have changed since the last build.
func (r *Reconciler) build(ctx context.Context, f observation, s state, past *jobMemory) error {
	changes := r.memory.changesOf(client.ObjectKeyFromObject(f.trainJob))
	if past.built.isCurrent(f, s, changes) {
		return nil
	}
	if f.jobSet == nil {
		if err := r.awaitEarlier(ctx, f.trainJob); err != nil {
			return err
		}
	}
	objects, err := r.newObjects(ctx, f.trainJob)
	if err != nil {
		return err
	}
	slices.SortStableFunc(objects, func(a, b apiruntime.ApplyConfiguration) int {
		return strings.Compare(applyOrder(a), applyOrder(b))
	})
	done := &built{generation: f.trainJob.Generation, changes: changes}
	for _, object := range objects {
		jobSet, isJobSet := object.(*jobsetapply.JobSetApplyConfiguration)
		switch {
		case !isJobSet:
			err = r.applyBeside(ctx, f, object)
		case s == stateSuspended || s == stateCreated:
			err = r.applyJobSet(ctx, f, jobSet, past, done)
		default: // The JobSet was deleted after this pass read it. The deletion's event starts the next pass.
		}
		if err != nil {
			return err
		}
	}
	past.built = done
	return nil
}

// awaitEarlier returns errPodsLeft or errEarlierJobs while pods of an earlier JobSet may run or may still be made.
// Deletion in the background removes the JobSet first, then its Jobs, then their pods. A controller that has not seen
// the deletion of a JobSet or Job can still make a Job or pod for it. awaitEarlier cannot exclude that.
func (r *Reconciler) awaitEarlier(ctx context.Context, job *trainer.TrainJob) error {
	if err := r.awaitPods(ctx, job); err != nil { // First, because it costs no request.
		return err
	}
	jobs, err := r.jobsOf(ctx, client.ObjectKeyFromObject(job))
	if err != nil {
		return err
	}
	for i := range jobs {
		if !isFinished(&jobs[i]) {
			return fmt.Errorf("%w: Job %s", errEarlierJobs, klog.KObj(&jobs[i]))
		}
	}
	return r.awaitPods(ctx, job) // A Job that was deleted since the first check may have made pods.
}

// awaitPods returns errPodsLeft while pods of an earlier JobSet may run. The end of a pod brings an event.
func (r *Reconciler) awaitPods(ctx context.Context, job *trainer.TrainJob) error {
	var pods corev1.PodList
	err := r.client.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingFields{health.JobSetIndex: job.Name},
		client.UnsafeDisableDeepCopy) // This function only reads the pods.
	if err != nil {
		return fmt.Errorf("list pods of earlier JobSets of TrainJob %s: %w", klog.KObj(job), err)
	}
	for i := range pods.Items {
		if phase := pods.Items[i].Status.Phase; phase != corev1.PodSucceeded && phase != corev1.PodFailed {
			return fmt.Errorf("%w: pod %s on node %q", errPodsLeft, klog.KObj(&pods.Items[i]), pods.Items[i].Spec.NodeName)
		}
	}
	return nil
}

// applyBeside applies an object that is not the JobSet. A foreground deletion of a TrainJob deletes these objects while
// the JobSet still ends. The cache may not have seen that deletion, so applyBeside asks the API server: it must not
// recreate the objects. If there is no JobSet, observe has already asked.
func (r *Reconciler) applyBeside(ctx context.Context, f observation, object apiruntime.ApplyConfiguration) error {
	if f.jobSet != nil {
		var job trainer.TrainJob
		err := r.live.Get(ctx, client.ObjectKeyFromObject(f.trainJob), &job)
		if apierrors.IsNotFound(err) || err == nil && (job.UID != f.trainJob.UID || resting(&job)) {
			return nil
		} else if err != nil {
			return fmt.Errorf("get TrainJob %s: %w", klog.KObj(f.trainJob), err)
		}
	}
	return r.apply(ctx, f.trainJob, object)
}

func (r *Reconciler) apply(ctx context.Context, job *trainer.TrainJob, object apiruntime.ApplyConfiguration) error {
	if err := r.client.Apply(ctx, object, fieldOwner, client.ForceOwnership); err != nil {
		kind := kindOf(object)
		err = fmt.Errorf("apply %s of TrainJob %s: %w", kind, klog.KObj(job), err)
		return &problem{reason: ReasonApplyFailed, action: "Apply" + kind, err: err}
	}
	return nil
}

// applyJobSet applies the JobSet. It deletes a JobSet if only a new JobSet can have what the TrainJob wants.
func (r *Reconciler) applyJobSet(
	ctx context.Context, f observation, jobSet *jobsetapply.JobSetApplyConfiguration, past *jobMemory, done *built,
) error {
	if f.jobSet != nil {
		// To apply a missing object creates it. The UID makes that a conflict if the JobSet is gone and the cache has not
		// seen it yet. Only a pass that has seen no JobSet has read the TrainJob from the API server.
		jobSet.WithUID(f.jobSet.UID)
		if !isSuspended(f.trainJob) {
			if err := r.prepareJobs(ctx, f, jobSet, past); err != nil {
				return err
			}
		}
	}
	if err := r.apply(ctx, f.trainJob, jobSet); err != nil {
		return r.rebuild(ctx, f, err)
	}
	past.replacements = 0
	// Apply writes the API server's answer into jobSet.
	done.jobSet, done.jobSetGeneration = ptr.Deref(jobSet.UID, ""), ptr.Deref(jobSet.Generation, 0)
	if f.jobSet == nil && past.built == nil && len(f.trainJob.Status.JobsStatus) == 0 { // The first JobSet.
		jobSetSeconds.Observe(r.clock.Since(f.trainJob.CreationTimestamp.Time).Seconds())
	}
	return nil
}

// newObjects asks the runtime framework for the TrainJob's objects. The framework also writes the runtime's snapshot.
//
// The framework dereferences optional fields without a check (Flux: spec.trainer.numNodes, MPI: a runtime without
// defaults). So newObjects recovers from a panic. The cause is the data of one job, and the job's owner should see it.
func (r *Reconciler) newObjects(ctx context.Context, job *trainer.TrainJob) (objects []apiruntime.ApplyConfiguration, err error) {
	defer func() {
		if p := recover(); p != nil {
			ctrl.LoggerFrom(ctx).Error(nil, "Runtime framework panicked", "panic", p, "stack", string(debug.Stack()))
			err = &problem{reason: ReasonBuildFailed, action: "Build", err: fmt.Errorf(
				"build objects of TrainJob %s: the runtime framework panicked, is a field missing in the TrainJob or its runtime? %v",
				klog.KObj(job), p)}
		}
	}()
	objects, err = r.runtimes[runtimeKind(job)].NewObjects(ctx, job.DeepCopy())
	if err == nil {
		return objects, nil
	}
	if r.hasPredecessorsSnapshot(ctx, job) {
		return nil, errPredecessor
	}
	p := &problem{reason: ReasonBuildFailed, action: "Build", err: fmt.Errorf("build objects of TrainJob %s: %w", klog.KObj(job), err)}
	if isRuntimeNotFound(err, job.Spec.RuntimeRef) {
		p.reason = ReasonRuntimeNotFound
	}
	return nil, p
}

// hasPredecessorsSnapshot says whether the snapshot is an earlier TrainJob's. The build waits for its deletion.
func (r *Reconciler) hasPredecessorsSnapshot(ctx context.Context, job *trainer.TrainJob) bool {
	var snapshot corev1.ConfigMap
	if err := r.client.Get(ctx, types.NamespacedName{Namespace: job.Namespace, Name: trainjobs.SnapshotName(job.Name)}, &snapshot); err != nil {
		return false
	}
	return isPredecessors(&snapshot, job)
}

// isPredecessors says whether an earlier TrainJob of the same name controls an object.
func isPredecessors(object metav1.Object, job *trainer.TrainJob) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.Kind == trainer.TrainJobKind && owner.Name == job.Name && owner.UID != job.UID
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

func applyOrder(object apiruntime.ApplyConfiguration) string {
	if kind := kindOf(object); kind != jobSetKind {
		return "0" + kind
	}
	return "1"
}

func kindOf(object apiruntime.ApplyConfiguration) string {
	if named, ok := object.(interface{ GetKind() *string }); ok {
		return ptr.Deref(named.GetKind(), "")
	}
	return fmt.Sprintf("%T", object)
}
