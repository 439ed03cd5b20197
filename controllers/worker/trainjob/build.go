// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"fmt"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapply "sigs.k8s.io/jobset/client-go/applyconfiguration/jobset/v1alpha2"
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
