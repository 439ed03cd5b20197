// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapply "sigs.k8s.io/jobset/client-go/applyconfiguration/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
)

const jobSetKind = "JobSet"

type objectBuilder struct {
	clients   Clients
	framework *framework
	leftovers *leftovers
	announce  *announcer
	known     *knownJobs
	clock     clock.PassiveClock
}

// build makes the TrainJob's objects and applies them. It applies the JobSet last, because its pods need the others. It
// does nothing if neither the TrainJob nor its objects have changed since the last build.
func (b *objectBuilder) build(ctx context.Context, f observation, s state, past *knownJob) error {
	changes := b.known.changesOf(client.ObjectKeyFromObject(f.trainJob))
	if past.built.isCurrent(f, s, changes) {
		return nil
	}
	if f.jobSet == nil {
		if err := b.leftovers.await(ctx, f.trainJob); err != nil {
			return err
		}
	}
	objects, err := b.framework.newObjects(ctx, f.trainJob)
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
			err = b.applyBeside(ctx, f, object)
		case s == stateSuspended || s == stateCreated:
			err = b.applyJobSet(ctx, f, jobSet, past, done)
		default: // The JobSet was deleted after this pass read it. The deletion's event starts the next pass.
		}
		if err != nil {
			return err
		}
	}
	past.built = done
	return nil
}

// applyBeside applies an object that is not the JobSet. A foreground deletion of a TrainJob deletes these objects while
// the JobSet still ends. The cache may not have seen that deletion, so applyBeside asks the API server: it must not
// recreate the objects. If there is no JobSet, observe has already asked.
func (b *objectBuilder) applyBeside(ctx context.Context, f observation, object apiruntime.ApplyConfiguration) error {
	if f.jobSet != nil {
		var job trainer.TrainJob
		err := b.clients.Live.Get(ctx, client.ObjectKeyFromObject(f.trainJob), &job)
		if apierrors.IsNotFound(err) || err == nil && (job.UID != f.trainJob.UID || resting(&job)) {
			return nil
		} else if err != nil {
			return fmt.Errorf("get TrainJob %s: %w", klog.KObj(f.trainJob), err)
		}
	}
	return b.clients.apply(ctx, f.trainJob, object)
}

// applyJobSet applies the JobSet. It deletes a JobSet if only a new JobSet can have what the TrainJob wants.
func (b *objectBuilder) applyJobSet(
	ctx context.Context, f observation, jobSet *jobsetapply.JobSetApplyConfiguration, past *knownJob, done *built,
) error {
	if isCopy(f.trainJob) {
		// JobSet would delete it, and nobody could tell the hub that the copy has ended. The hub cleans up.
		jobSet.Spec.TTLSecondsAfterFinished = nil
	}
	if f.jobSet != nil {
		// An apply creates a missing object. The UID makes that a conflict if the JobSet is gone and the cache has not seen
		// it yet. Only a pass that has seen no JobSet has read the TrainJob from the API server.
		jobSet.WithUID(f.jobSet.UID)
		if !isSuspended(f.trainJob) {
			if err := b.prepareJobs(ctx, f, jobSet, past); err != nil {
				return err
			}
		}
	}
	if err := b.clients.apply(ctx, f.trainJob, jobSet); err != nil {
		return b.rebuild(ctx, f, err)
	}
	past.replacements = 0
	// Apply writes the API server's answer into jobSet.
	done.jobSet, done.jobSetGeneration = ptr.Deref(jobSet.UID, ""), ptr.Deref(jobSet.Generation, 0)
	if f.jobSet == nil && past.built == nil && len(f.trainJob.Status.JobsStatus) == 0 { // The first JobSet.
		jobSetSeconds.Observe(b.clock.Since(f.trainJob.CreationTimestamp.Time).Seconds())
	}
	return nil
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

// rebuild handles a refused change of a JobSet. On a suspended JobSet, JobSet's webhook allows changes of pods' labels,
// annotations, node selectors, tolerations and scheduling gates. runtimePatches can have more. rebuild deletes a JobSet
// that has never started and returns nil: the new one has the change. Otherwise it returns the refusal.
func (b *objectBuilder) rebuild(ctx context.Context, f observation, refusal error) error {
	if !f.ownsJobSet() || !isImmutable(refusal) {
		return refusal
	}
	jobs, err := b.clients.jobsOf(ctx, client.ObjectKeyFromObject(f.jobSet))
	if err != nil {
		return errors.Join(refusal, err)
	}
	started := trainjobs.HasStarted(f.jobSet, jobs)
	if started && isSuspended(f.trainJob) {
		// The user wants the pods to stop. This part of the change is possible.
		err = b.clients.suspendJobSet(ctx, f.jobSet)
	}
	if started {
		// The refusal comes last: it lists all replicated jobs, and its end does not fit into an Event.
		return &problem{reason: ReasonApplyFailed, action: "ApplyJobSet", err: fmt.Errorf(
			"the JobSet has run already, so it cannot be replaced: take back the change, or create the TrainJob again: %w",
			errors.Join(refusal, err))}
	}
	if err := b.clients.deleteJobSet(ctx, f.jobSet); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Deleted JobSet that has never started, to make it anew", "refusal", refusal.Error())
	b.announce.rebuilt(f.trainJob)
	return nil
}

// isImmutable says whether the API server refuses only because fields are immutable, not because a value is wrong.
func isImmutable(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	causes := status.Status().Details.Causes
	for _, cause := range causes {
		if cause.Type != metav1.CauseTypeFieldValueInvalid || !strings.Contains(cause.Message, apivalidation.FieldImmutableErrorMsg) {
			return false
		}
	}
	return len(causes) > 0
}
