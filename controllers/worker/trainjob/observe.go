// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/internal/health"
)

type observer struct {
	clients   Clients
	framework *framework
	known     *knownJobs
	gate      func(*trainer.TrainJob) (open bool, why string)
	clock     clock.PassiveClock
}

// observe reads what decide needs. Without a TrainJob, the observation is empty.
//
// Without a JobSet, the next step may be to create one, so observe reads the TrainJob again, from the API server. The
// cache of JobSets can be ahead of the cache of TrainJobs. It may have dropped the JobSet of a job that has ended or is
// being deleted, before the other cache shows that. The job would run again.
func (o *observer) observe(ctx context.Context, key types.NamespacedName) (observation, error) {
	job := &trainer.TrainJob{}
	if err := o.clients.Cached.Get(ctx, key, job); apierrors.IsNotFound(err) {
		return observation{}, nil
	} else if err != nil {
		return observation{}, fmt.Errorf("get TrainJob %s: %w", key, err)
	}
	f := observation{trainJob: job, runtimeKinds: o.framework.kinds}
	if resting(job) {
		return f, nil
	}
	if err := o.observeJobSet(ctx, &f); err != nil || hasEnded(&job.Status) {
		return f, err
	}
	if f.jobSet != nil {
		return f, o.observeHealth(ctx, &f)
	}
	f.trainJob = &trainer.TrainJob{}
	if err := o.clients.Live.Get(ctx, key, f.trainJob); apierrors.IsNotFound(err) {
		return observation{}, nil
	} else if err != nil {
		return observation{}, fmt.Errorf("get TrainJob %s: %w", key, err)
	}
	if open, why := o.gate(f.trainJob); !open {
		f.held = why
	}
	return f, nil
}

// observeJobSet reads the JobSet with the TrainJob's name. If the TrainJob owns it, the framework derives the status.
func (o *observer) observeJobSet(ctx context.Context, f *observation) error {
	key := client.ObjectKeyFromObject(f.trainJob)
	jobSet := &jobsetv1alpha2.JobSet{}
	if err := o.clients.Cached.Get(ctx, key, jobSet); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("get JobSet %s: %w", key, err)
	}
	f.jobSet = jobSet
	if !f.ownsJobSet() {
		return nil
	}
	reported, err := o.framework.status(ctx, f.trainJob)
	if apierrors.IsNotFound(err) { // The cache has dropped the JobSet meanwhile.
		f.jobSet = nil
		return nil
	} else if err != nil {
		return fmt.Errorf("derive status of TrainJob %s: %w", key, err)
	}
	f.reported = reported
	return nil
}

// observeHealth reads the pods of a JobSet that is meant to run.
func (o *observer) observeHealth(ctx context.Context, f *observation) error {
	key := client.ObjectKeyFromObject(f.trainJob)
	if !f.ownsJobSet() || ptr.Deref(f.jobSet.Spec.Suspend, false) {
		o.known.health.Forget(key)
		return nil
	}
	pods, err := health.List(ctx, o.clients.Cached, f.jobSet)
	if err != nil {
		return err
	}
	f.health = health.Input{Pods: pods, Since: runningSince(f.jobSet), Progress: f.trainJob.Status.TrainerStatus}
	past, now := o.known.recall(f.trainJob), o.clock.Now()
	recorded := recordedTrouble(f.trainJob, past.trouble)
	o.known.health.Observe(key, &f.health, recorded, now)
	if recorded != health.NoPodReady {
		past.warning = warning{}
		return nil
	}
	if now.Sub(past.warning.read) >= warningLife(past.warning.words) {
		past.warning.words, err = health.WarningOf(ctx, o.clients.Live, f.jobSet, pods)
		if err != nil && !apierrors.IsForbidden(err) { // An agent may be newer than its rights.
			return err
		}
		past.warning.read = now
	}
	f.health.Warning = past.warning.words
	return nil
}

// recordedTrouble is the trouble that the job says it has or, if it says nothing, the trouble that this process knows.
func recordedTrouble(job *trainer.TrainJob, known health.Trouble) string {
	if c := meta.FindStatusCondition(job.Status.Conditions, ConditionStalled); c != nil && c.Status == metav1.ConditionTrue {
		return c.Reason
	}
	if known.Reason == "" {
		if said := trainjobs.TroubleOf(job); said != nil {
			return said.Reason
		}
	}
	return known.Reason
}
