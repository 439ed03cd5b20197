// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/decider"
	"github.com/trainyard/trainyard/controllers/hub/placement/kueue"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/accelerators"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// writer writes the records of unplaced jobs: Dispatches, the condition Suspended of TrainJobs, and Events.
type writer struct {
	hub client.Client
	// hubReader reads from the hub's API server.
	hubReader    client.Reader
	announcer    announcer
	clock        clock.PassiveClock
	accelerators accelerators.Table
	// runtimes is of the Options.
	runtimes Runtimes
}

// place writes a grant, before anything is done on the worker: one create for a new job, one patch for a job that
// waited.
func (w *writer) place(ctx context.Context, seen *observation) error {
	grant := seen.grant
	if err := w.verify(ctx, seen); err != nil {
		return err
	}
	d, err := w.ended(ctx, seen, grant.Job.Circumstances)
	if err != nil {
		return err
	}
	placed(d, grant)
	differs := w.runtimeDiffers(seen.job, grant)
	if differs != "" {
		d.Annotations[v1alpha1.AnnotationDecision] = dispatch.Cut(grant.Decision.Message + "; but " + differs)
	}
	noteAsked(d, digest(grant.Job.Circumstances, digestOf(grant.Worker)))
	if err := w.write(ctx, seen, d); err != nil {
		return err
	}
	w.announcer.placed(seen.job, d, grant.Decision)
	if differs != "" {
		w.announcer.runtimeDiffers(seen.job, d, differs)
	}
	return nil
}

// runtimeDiffers says that the worker will make other pods of a job than were counted, because its runtime is not the
// hub's. Empty: not as far as is known.
func (w *writer) runtimeDiffers(job *unstructured.Unstructured, grant *decider.Grant) string {
	if w.runtimes == nil {
		return ""
	}
	kind, key := trainjobs.RuntimeOf(job)
	known, _ := w.runtimes.Of(grant.Decision.Cluster).Of(key)
	rules := grant.Decision.Policy.Rules()
	switch {
	case rules.Runtime == v1alpha1.RuntimePin, known.State == "", known.Outdated && *rules.Propagate.Runtimes:
		return ""
	case known.Assumed == "", grant.Job.Own.On(grant.Decision.Cluster) != nil:
		return ""
	}
	return fmt.Sprintf("%s %q of worker %q is not the hub's, with which the room was counted: %s; the worker's was not counted because %s",
		kind, key.Name, grant.Decision.Cluster, known.Difference(), known.Assumed)
}

// placed makes a Dispatch what a grant says, without writing it.
func placed(d *v1alpha1.Dispatch, grant *decider.Grant) {
	job, worker := grant.Job, grant.Worker
	record.Place(d, v1alpha1.DispatchSpec{
		Cluster: grant.Decision.Cluster, ClusterID: worker.Status.ClusterID, Attempt: job.Attempt,
		PodSets: copied(job.PodSetsIn(grant.Decision.Cluster, grant.Decision.Domain)), Domain: grant.Decision.Domain.DeepCopy(),
		AddedNodes: grant.Decision.AddedNodes, Checkpoint: checkpointOf(&grant.Decision, job, d),
		Priority: job.Priority, Counted: countedOn(job, grant.Decision.Cluster),
		Failover: failoverOf(grant.Decision.Policy, job, worker), LocalQueue: localQueueOf(grant),
		Dependencies:   slices.Clone(job.Dependencies),
		TranslatedInto: dispatch.TranslatedInto(&job.Job, grant.Decision.Policy, worker.Status.Trainer),
		Runtime:        dispatch.PinnedBy(grant.Decision.Policy),
	}, grant.Decision.Message)
}

// countedOn says from what the demand of a job on a worker was derived.
func countedOn(job *queue.Job, worker v1alpha1.ClusterName) *v1alpha1.Counted {
	counted := job.Counted.DeepCopy()
	if own := job.Own.On(worker); own != nil && counted != nil {
		counted.WorkerRuntime = own.Digest
	}
	return counted
}

// localQueueOf is what the Dispatch of a job says about the LocalQueue of its worker. Nil: the copy has the job's
// labels, of which none names a queue.
func localQueueOf(grant *decider.Grant) *string {
	local := dispatch.QueueOf(&grant.Job.Job, grant.Worker.Spec.Kueue.WorkerQueue)
	if local.Name == "" && grant.Job.Labels[v1alpha1.LabelLocalQueue] == "" {
		return nil
	}
	return ptr.To(local.Name)
}

// evict asks mirror to end the attempt of a job.
func (w *writer) evict(ctx context.Context, seen *observation) error {
	d := seen.record()
	record.Evict(d, *seen.eviction)
	return w.write(ctx, seen, d)
}

// ended is record, and says in which circumstances the worker of an attempt that has ended has refused the job: those
// that there are now, as far as they are known.
func (w *writer) ended(ctx context.Context, seen *observation, circumstances string) (*v1alpha1.Dispatch, error) {
	d := seen.record()
	if circumstances == "" || record.AttemptOf(seen.dispatch) != record.Ended {
		return d, nil
	}
	worker := &v1alpha1.WorkerCluster{}
	switch err := w.hub.Get(ctx, types.NamespacedName{Name: string(d.Spec.Cluster)}, worker); {
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
func (w *writer) write(ctx context.Context, seen *observation, after *v1alpha1.Dispatch) error {
	if seen.dispatch != nil {
		err := w.records().Patch(ctx, seen.dispatch, after)
		return w.records().Refused(ctx, seen.dispatch, v1alpha1.ReasonDispatchRefused, err)
	}
	err := w.records().Create(ctx, after)
	if records.IsFinal(err) {
		return w.createRefused(ctx, seen, err)
	}
	return err
}

// createRefused is for a Dispatch that the API server has refused for good, with err. It creates a Dispatch without
// decision and demand that says so. If this Dispatch is refused too, it records an Event on the TrainJob. It returns
// err.
func (w *writer) createRefused(ctx context.Context, seen *observation, err error) error {
	d := record.New(seen.job, seen.past.attempt)
	if failed := w.records().Create(ctx, d); failed != nil {
		if records.IsFinal(failed) {
			w.announcer.refused(seen.job, err)
		}
		return err
	}
	return w.records().Refused(ctx, d, v1alpha1.ReasonDispatchRefused, err)
}

func (w *writer) records() records.Writer {
	return records.Writer{Hub: w.hub, Clock: w.clock, Accelerators: w.accelerators}
}

// suspensionMessage is for the owner of a job.
const suspensionMessage = "the TrainJob has spec.suspend: true"

// suspend says that a job is suspended, and, if it has a Dispatch, that it is not placed because of that.
func (w *writer) suspend(ctx context.Context, seen *observation) error {
	if seen.dispatch == nil {
		return w.sayWhetherSuspended(ctx, seen)
	}
	decision := dispatch.Decision{Reason: v1alpha1.ReasonSuspended, Message: suspensionMessage}
	if seen.kueue.Standing == kueue.MultiKueue { // It is not placed either when it is resumed.
		decision = *ofKueue(seen)
	}
	return w.wait(ctx, seen, &queue.Job{Job: dispatch.Job{Priority: seen.dispatch.Spec.Priority, PodSets: seen.dispatch.Spec.PodSets}}, decision)
}

// wait says on the Dispatch of a job that is not on the waiting list why it is not placed.
func (w *writer) wait(ctx context.Context, seen *observation, job *queue.Job, why dispatch.Decision) error {
	d, err := w.withoutWorker(ctx, seen, job)
	if err != nil {
		return err
	}
	return w.say(ctx, seen, d, why, nil)
}

// withoutWorker returns the job's Dispatch without a worker, and with what the job needs. It writes the Dispatch if that
// has changed. The worker goes only out of a Dispatch whose attempt has ended.
func (w *writer) withoutWorker(ctx context.Context, seen *observation, job *queue.Job) (*v1alpha1.Dispatch, error) {
	if d := seen.dispatch; d != nil && d.Spec.Cluster == "" && d.Spec.Priority == job.Priority && equality.Semantic.DeepEqual(d.Spec.PodSets, job.PodSets) {
		return d, nil
	}
	if err := w.verify(ctx, seen); err != nil {
		return nil, err
	}
	d, err := w.ended(ctx, seen, job.Circumstances)
	if err != nil {
		return nil, err
	}
	record.Unplace(d, job.Priority, copied(job.PodSets))
	return d, w.write(ctx, seen, d)
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

// say writes the status of a waiting Dispatch if it has changed, an Event if the reason has, and on the job whether it is
// suspended.
func (w *writer) say(
	ctx context.Context, seen *observation, d *v1alpha1.Dispatch, decision dispatch.Decision, explanation []v1alpha1.ClusterExplanation,
) error {
	why := record.Why{
		Reason: decision.Reason, Message: decision.Message, Explanation: explanation, Pauses: seen.kueue.GaveBack,
	}
	news := !record.WaitsFor(&d.Status, why.Reason)
	err := w.records().UpdateStatus(ctx, d, func(status *v1alpha1.DispatchStatus) {
		record.Wait(status, d, why, w.clock.Now())
	})
	if err == nil && news {
		w.announcer.waiting(seen.job, d, decision, explanation)
	}
	return cmp.Or(err, w.sayWhetherSuspended(ctx, seen))
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
// the copy tells it to the worker's agent. Where no agent answers, nobody would stop the copy, so Fenced becomes Hold. A
// job whose checkpoint is in a volume of the worker is held in any case: it could go on nowhere else.
func failoverOf(policy *v1alpha1.DispatchPolicy, job *queue.Job, worker *v1alpha1.WorkerCluster) v1alpha1.Failover {
	failover := policy.Rules().Failover
	if job.Claim != "" {
		return v1alpha1.FailoverHold
	}
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
func (w *writer) verify(ctx context.Context, seen *observation) error {
	if !record.IsGivenUp(seen.dispatch) {
		return nil
	}
	job, err := records.Job(ctx, w.hubReader, client.ObjectKeyFromObject(seen.job))
	switch {
	case err != nil:
		return err
	case job == nil, job.GetUID() != seen.job.GetUID(), trainjobs.Terminal(job) != nil:
		return errEnded
	}
	return nil
}

// deleteOrphan deletes a Dispatch that waits for a job that is gone or has ended.
func (w *writer) deleteOrphan(ctx context.Context, seen *observation) error {
	return client.IgnoreNotFound(w.records().DeleteUnchanged(ctx, seen.dispatch))
}

// conclude says on the Dispatch of a job that has ended that it has: by an attempt that was given up, or because the job
// was given up.
func (w *writer) conclude(ctx context.Context, seen *observation) error {
	end := trainjobs.Terminal(seen.job)
	if record.AttemptOf(seen.dispatch) == record.GivenUp {
		return w.records().FinishGivenUp(ctx, seen.dispatch, end)
	}
	if err := w.records().Finish(ctx, seen.dispatch, end, func(*v1alpha1.DispatchStatus) {}); err != nil {
		return err
	}
	w.announcer.concluded(seen, end)
	return nil
}

// sayWhetherSuspended gives a suspended job that has no copy the condition Suspended, as the controller of a cluster
// gives it to the jobs that it runs. A job that is not suspended has no such condition: clients would take it for a
// state. Once the job has a copy, its status comes from the copy. MultiKueue writes the status of a job that it
// dispatches.
func (w *writer) sayWhetherSuspended(ctx context.Context, seen *observation) error {
	if seen.kueue.Standing == kueue.MultiKueue {
		return nil
	}
	before, _ := seen.job.Object["status"].(map[string]any)
	status := trainjobs.WithoutCondition(before, trainer.TrainJobSuspended, metav1.ConditionTrue, metav1.ConditionFalse)
	if trainjobs.Suspended(seen.job) {
		if trainjobs.HasCondition(seen.job, trainer.TrainJobSuspended) {
			return nil
		}
		status = withCondition(status, metav1.Condition{
			Type: trainer.TrainJobSuspended, Status: metav1.ConditionTrue, Reason: trainer.TrainJobSuspendedReason,
			Message: constants.TrainJobSuspendedMessage, LastTransitionTime: metav1.NewTime(w.clock.Now()),
		})
	}
	if equality.Semantic.DeepEqual(before, status) {
		return nil
	}
	updated := seen.job.DeepCopy()
	if updated.Object["status"] = status; status == nil {
		delete(updated.Object, "status")
	}
	patch := client.MergeFromWithOptions(seen.job, client.MergeFromWithOptimisticLock{})
	if err := w.hub.Status().Patch(ctx, updated, patch, records.FieldOwner); err != nil {
		return fmt.Errorf("patch status of TrainJob %s/%s: %w", seen.job.GetNamespace(), seen.job.GetName(), err)
	}
	return nil
}
