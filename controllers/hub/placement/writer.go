// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/decider"
	"github.com/trainyard/trainyard/controllers/hub/placement/kueue"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// writer writes the records of unplaced jobs: Dispatches, the condition Suspended of TrainJobs, and Events.
type writer struct{ *Options }

// place writes a grant, before anything is done on the worker: one create for a new job, one patch for a job that
// waited.
func (w *writer) place(ctx context.Context, f observation, grant *decider.Grant) error {
	if err := w.verify(ctx, f); err != nil {
		return err
	}
	d, err := w.ended(ctx, f, grant.Job.Circumstances)
	if err != nil {
		return err
	}
	placed(d, grant)
	noteAsked(d, digest(grant.Job.Circumstances, digestOf(grant.Worker)))
	if err := w.write(ctx, f, d); err != nil {
		return err
	}
	w.recordPlaced(f.job, d, grant.Decision)
	return nil
}

// placed makes a Dispatch what a grant says, without writing it.
func placed(d *v1alpha1.Dispatch, grant *decider.Grant) {
	job, worker := grant.Job, grant.Worker
	record.Place(d, v1alpha1.DispatchSpec{
		Cluster: grant.Decision.Cluster, ClusterID: worker.Status.ClusterID, Attempt: job.Attempt,
		PodSets: copied(job.PodSets), Priority: job.Priority, Counted: job.Counted.DeepCopy(),
		Failover: failoverOf(grant.Decision.Policy, worker), LocalQueue: localQueueOf(grant),
	}, grant.Decision.Message)
}

// evict asks mirror to end the attempt of a job.
func (w *writer) evict(ctx context.Context, f observation) error {
	d := f.record()
	record.Evict(d, *f.eviction)
	return w.write(ctx, f, d)
}

// record returns the job's Dispatch to be edited, a new one if it has none.
func (f *observation) record() *v1alpha1.Dispatch {
	if f.dispatch == nil {
		return record.New(f.job, f.past.attempt)
	}
	return f.dispatch.DeepCopy()
}

// ended is record, and says in which circumstances the worker of an attempt that has ended has refused the job: those
// that there are now, as far as they are known.
func (w *writer) ended(ctx context.Context, f observation, circumstances string) (*v1alpha1.Dispatch, error) {
	d := f.record()
	if circumstances == "" || record.AttemptOf(f.dispatch) != record.Ended {
		return d, nil
	}
	worker := &v1alpha1.WorkerCluster{}
	switch err := w.Hub.Get(ctx, types.NamespacedName{Name: string(d.Spec.Cluster)}, worker); {
	case err == nil:
		noteEnd(d, digest(circumstances, digestOf(worker)))
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("get WorkerCluster %q: %w", d.Spec.Cluster, err)
	}
	return d, nil
}

// copied is for what is sent: the client decodes the API server's answer into it, and the decider reads the original
// meanwhile.
func copied(podSets []v1alpha1.PodSet) []v1alpha1.PodSet {
	return (&v1alpha1.DispatchSpec{PodSets: podSets}).DeepCopy().PodSets
}

// write creates the Dispatch, or patches it if there was one before. A refusal for good is told.
func (w *writer) write(ctx context.Context, f observation, after *v1alpha1.Dispatch) error {
	if f.dispatch != nil {
		err := w.records().Patch(ctx, f.dispatch, after)
		return w.records().Refused(ctx, f.dispatch, v1alpha1.ReasonDispatchRefused, err)
	}
	err := w.records().Create(ctx, after)
	if records.IsFinal(err) {
		return w.createRefused(ctx, f, err)
	}
	return err
}

// createRefused is for a Dispatch that the API server has refused for good, with err. It creates a Dispatch without
// decision and demand that says so. If this Dispatch is refused too, it records an Event on the TrainJob. It returns
// err.
func (w *writer) createRefused(ctx context.Context, f observation, err error) error {
	d := record.New(f.job, f.past.attempt)
	if failed := w.records().Create(ctx, d); failed != nil {
		if records.IsFinal(failed) {
			w.recordRefused(f.job, err)
		}
		return err
	}
	return w.records().Refused(ctx, d, v1alpha1.ReasonDispatchRefused, err)
}

func (w *writer) records() records.Writer { return records.Writer{Hub: w.Hub, Clock: w.Clock} }

// suspensionMessage is for the owner of a job.
const suspensionMessage = "the TrainJob has spec.suspend: true"

// suspend says that a job is suspended, and, if it has a Dispatch, that it is not placed because of that.
func (w *writer) suspend(ctx context.Context, f observation) error {
	if f.dispatch == nil {
		return w.sayWhetherSuspended(ctx, f)
	}
	decision := dispatch.Decision{Reason: v1alpha1.ReasonSuspended, Message: suspensionMessage}
	if f.kueue.Standing == kueue.MultiKueue { // It is not placed either when it is resumed.
		decision = *kueueObstacle(f)
	}
	return w.wait(ctx, f, &queue.Job{Job: dispatch.Job{Priority: f.dispatch.Spec.Priority, PodSets: f.dispatch.Spec.PodSets}}, decision)
}

// wait says on the Dispatch of a job that is not on the waiting list why it is not placed.
func (w *writer) wait(ctx context.Context, f observation, job *queue.Job, why dispatch.Decision) error {
	d, err := w.withoutWorker(ctx, f, job)
	if err != nil {
		return err
	}
	return cmp.Or(w.writeStatus(ctx, f, d, why, nil), w.sayWhetherSuspended(ctx, f))
}

// withoutWorker returns the job's Dispatch without a worker, and with what the job needs. It writes the Dispatch if that
// has changed. The worker goes only out of a Dispatch whose attempt has ended.
func (w *writer) withoutWorker(ctx context.Context, f observation, job *queue.Job) (*v1alpha1.Dispatch, error) {
	if d := f.dispatch; d != nil && d.Spec.Cluster == "" && d.Spec.Priority == job.Priority && equality.Semantic.DeepEqual(d.Spec.PodSets, job.PodSets) {
		return d, nil
	}
	if err := w.verify(ctx, f); err != nil {
		return nil, err
	}
	d, err := w.ended(ctx, f, job.Circumstances)
	if err != nil {
		return nil, err
	}
	record.Unplace(d, job.Priority, copied(job.PodSets))
	return d, w.write(ctx, f, d)
}

// onlyNumbersChanged is true if the same workers still reject the job for the same reasons, with other words.
func onlyNumbersChanged(d *v1alpha1.Dispatch, decision dispatch.Decision, explanation []v1alpha1.ClusterExplanation) bool {
	said := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced)
	return record.WaitsFor(&d.Status, decision.Reason) &&
		slices.EqualFunc(d.Status.Explanation, explanation, func(a, b v1alpha1.ClusterExplanation) bool {
			return a.Cluster == b.Cluster && a.Reason == b.Reason
		}) &&
		(said.Message != record.Message(decision.Message) || !equality.Semantic.DeepEqual(d.Status.Explanation, explanation))
}

// writeStatus writes the status of a waiting Dispatch if it has changed, and an Event if the reason has.
func (w *writer) writeStatus(
	ctx context.Context, f observation, d *v1alpha1.Dispatch, decision dispatch.Decision, explanation []v1alpha1.ClusterExplanation,
) error {
	why := record.Why{Reason: decision.Reason, Message: decision.Message, Explanation: explanation}
	news := !record.WaitsFor(&d.Status, why.Reason)
	err := w.records().UpdateStatus(ctx, d, func(status *v1alpha1.DispatchStatus) {
		record.Wait(status, d, why, w.Clock.Now())
	})
	if err == nil && news {
		w.recordWaiting(f.job, d, decision, explanation)
	}
	return err
}

// previousOf returns the worker on which the copy of a Dispatch ran last: where it is, or else the worker of the last
// attempt that did not end with a refusal. A worker that has been lost or drained since counts too: it has the job's
// images and data.
func previousOf(d *v1alpha1.Dispatch) v1alpha1.ClusterName {
	if d.Status.CopyUID != "" && d.Status.Cluster != "" {
		return d.Status.Cluster
	}
	for _, attempt := range slices.Backward(d.Status.History) {
		if !record.EndingOf(attempt.Outcome).NeverRan {
			return attempt.Cluster
		}
	}
	return ""
}

// failoverOf is what happens to a job on a worker if the worker is lost. It is decided when the job is placed, because
// the copy tells it to the worker's agent. Where no agent answers, nobody would stop the copy, so Fenced becomes Hold.
func failoverOf(policy *v1alpha1.DispatchPolicy, worker *v1alpha1.WorkerCluster) v1alpha1.Failover {
	failover := policy.Rules().Failover
	if failover == v1alpha1.FailoverFenced && !meta.IsStatusConditionTrue(worker.Status.Conditions, v1alpha1.WorkerClusterAgentReady) {
		return v1alpha1.FailoverHold
	}
	return failover
}

// errEnded: the cache shows that the job goes on, but the job has ended or is deleted. Callers handle it as a conflict.
var errEnded = requeue.Outdated("the job has ended")

// verify fails if the API server says that a job has ended whose attempt was given up because its worker was lost. With
// failover Immediate a lost worker may return, and its copy may end the job. For other jobs the API server is not
// asked.
func (w *writer) verify(ctx context.Context, f observation) error {
	if !record.IsGivenUp(f.dispatch) {
		return nil
	}
	job, err := records.Job(ctx, w.HubReader, client.ObjectKeyFromObject(f.job))
	switch {
	case err != nil:
		return err
	case job == nil, job.GetUID() != f.job.GetUID(), trainjobs.Terminal(job) != nil:
		return errEnded
	}
	return nil
}

// conclude says on the Dispatch of a given up attempt that the job has ended by it.
func (w *writer) conclude(ctx context.Context, f observation) error {
	end := trainjobs.Terminal(f.job)
	if err := w.records().Finish(ctx, f.dispatch, end, func(*v1alpha1.DispatchStatus) {}); err != nil {
		return err
	}
	w.recordConcluded(f, end)
	return nil
}
