// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/kueue"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
)

// explanationInterval is the least time between two writes of a waiting job's explanation if only numbers in it change.
const explanationInterval = 10 * time.Second

// record writes the decision, before anything is done on the worker: one create for a new job, one patch for one that waited.
func (r *Reconciler) record(ctx context.Context, f facts, a *assignment) error {
	if err := r.verify(ctx, f); err != nil {
		return err
	}
	d := record.New(f.job)
	if f.dispatch != nil {
		d = f.dispatch.DeepCopy()
	}
	d.Spec.Cluster, d.Spec.ClusterID, d.Spec.Attempt = a.worker, a.clusterID, a.attempt
	d.Spec.PodSets, d.Spec.Priority, d.Spec.Failover, d.Spec.Eviction = copied(a.podSets), a.priority, a.failover, nil
	metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1alpha1.AnnotationDecision, a.grant.Message)
	noteAsked(d, a.asked)
	controllerutil.AddFinalizer(d, v1alpha1.FinalizerCopy)
	if err := r.write(ctx, f, d); err != nil {
		return err
	}
	r.recordPlaced(f.job, d, *a.grant)
	return nil
}

// evict asks mirror to end the attempt of a job.
func (r *Reconciler) evict(ctx context.Context, f facts) error {
	d := f.dispatch.DeepCopy()
	d.Spec.Eviction = f.eviction.DeepCopy()
	return r.write(ctx, f, d)
}

// copied is for what is sent: the API server's answer is decoded into it, and the queue reads the original meanwhile.
func copied(podSets []v1alpha1.PodSet) []v1alpha1.PodSet {
	return (&v1alpha1.DispatchSpec{PodSets: podSets}).DeepCopy().PodSets
}

// write creates the Dispatch, or patches it if there was one before. A refusal for good is told.
func (r *Reconciler) write(ctx context.Context, f facts, after *v1alpha1.Dispatch) error {
	if f.dispatch == nil {
		return r.notCreated(ctx, f, r.ender().Create(ctx, after))
	}
	return r.ender().Refused(ctx, f.dispatch, v1alpha1.ReasonDispatchRefused, r.ender().Patch(ctx, f.dispatch, after))
}

// notCreated returns the error. If the Dispatch is refused for good, one without a decision and a demand is created, to
// say so; and if that is refused too, an Event on the TrainJob says it.
func (r *Reconciler) notCreated(ctx context.Context, f facts, err error) error {
	if !records.IsFinal(err) {
		return err
	}
	d := record.New(f.job)
	d.Spec.Attempt = r.lastAttempt(f)
	if failed := r.ender().Create(ctx, d); failed != nil {
		if records.IsFinal(failed) {
			r.recordRefused(f.job, err)
		}
		return err
	}
	return r.ender().Refused(ctx, d, v1alpha1.ReasonDispatchRefused, err)
}

func (r *Reconciler) ender() records.Writer { return records.Writer{Hub: r.Hub, Clock: r.Clock} }

// suspensionMessage is for the owner of a job.
const suspensionMessage = "the TrainJob has spec.suspend: true"

// gate says of a job that it is suspended, and of one that had a Dispatch that it is not placed for that. A job that had none needs none.
func (r *Reconciler) gate(ctx context.Context, f facts) error {
	if f.dispatch == nil {
		return r.sayWhetherSuspended(ctx, f)
	}
	d, err := r.withdrawn(ctx, f, f.dispatch.Spec.Priority, f.dispatch.Spec.PodSets)
	if err != nil {
		return err
	}
	decision := dispatch.Decision{Reason: v1alpha1.ReasonSuspended, Message: suspensionMessage}
	if f.kueue.Standing == kueue.MultiKueue { // It is not placed either when it is resumed.
		decision = *kueueVerdict(f)
	}
	return cmp.Or(r.writeStatus(ctx, f, d, decision, nil), r.sayWhetherSuspended(ctx, f))
}

// wait says on the Dispatch why the job is not placed. Of a job in line it explains what each worker lacks.
func (r *Reconciler) wait(ctx context.Context, f facts, job *queue.Job, decision dispatch.Decision) (reconcile.Result, error) {
	d, err := r.withdrawn(ctx, f, job.Priority, job.PodSets)
	if err != nil {
		return reconcile.Result{}, err
	}
	var explanation []v1alpha1.ClusterExplanation
	inLine := job.Class != ""
	if inLine {
		explanation = record.BoundExplanation(r.line.explain(job))
	}
	if inLine && onlyNumbersChanged(d, decision, explanation) {
		if due := explanationInterval - r.Clock.Since(r.line.telling(job.Key())); due > 0 {
			return reconcile.Result{RequeueAfter: due}, nil
		}
	}
	if err := cmp.Or(r.writeStatus(ctx, f, d, decision, explanation), r.sayWhetherSuspended(ctx, f)); err != nil {
		return reconcile.Result{}, err
	}
	if inLine {
		r.line.tell(job.Key())
	}
	return reconcile.Result{}, nil
}

// withdrawn returns the job's Dispatch with no worker in it, and with what the job needs, writing it first if need be. The worker goes
// only out of a Dispatch whose attempt has ended, and with it the eviction, and the finalizer, which guards a copy.
func (r *Reconciler) withdrawn(ctx context.Context, f facts, priority int32, podSets []v1alpha1.PodSet) (*v1alpha1.Dispatch, error) {
	if d := f.dispatch; d != nil && d.Spec.Cluster == "" && d.Spec.Priority == priority && equality.Semantic.DeepEqual(d.Spec.PodSets, podSets) {
		return d, nil
	}
	if err := r.verify(ctx, f); err != nil {
		return nil, err
	}
	d := record.New(f.job)
	if f.dispatch != nil {
		d = f.dispatch.DeepCopy()
		d.Spec.Cluster, d.Spec.ClusterID, d.Spec.Failover, d.Spec.Eviction = "", "", "", nil
		delete(d.Annotations, v1alpha1.AnnotationDecision)
		controllerutil.RemoveFinalizer(d, v1alpha1.FinalizerCopy)
	} else {
		d.Spec.Attempt = r.lastAttempt(f)
	}
	d.Spec.Priority, d.Spec.PodSets = priority, copied(podSets)
	return d, r.write(ctx, f, d)
}

// onlyNumbersChanged is true if the same workers still reject the job for the same reasons, with other words.
func onlyNumbersChanged(d *v1alpha1.Dispatch, decision dispatch.Decision, explanation []v1alpha1.ClusterExplanation) bool {
	condition := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced)
	return condition != nil && condition.Status == metav1.ConditionFalse && condition.Reason == decision.Reason &&
		slices.EqualFunc(d.Status.Explanation, explanation, func(a, b v1alpha1.ClusterExplanation) bool {
			return a.Cluster == b.Cluster && a.Reason == b.Reason
		}) &&
		(condition.Message != record.Message(decision.Message) || !equality.Semantic.DeepEqual(d.Status.Explanation, explanation))
}

// writeStatus writes the status of a waiting Dispatch if it has changed, and an Event if the reason has.
func (r *Reconciler) writeStatus(
	ctx context.Context, f facts, d *v1alpha1.Dispatch, decision dispatch.Decision, explanation []v1alpha1.ClusterExplanation,
) error {
	before := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced)
	news := before == nil || before.Status != metav1.ConditionFalse || before.Reason != decision.Reason
	err := r.ender().UpdateStatus(ctx, d, func(status *v1alpha1.DispatchStatus) {
		// A copy: the answer of the API server is written into it, and other jobs of the class have the same
		// explanation.
		status.Explanation = (&v1alpha1.DispatchStatus{Explanation: explanation}).DeepCopy().Explanation
		status.Phase, status.Reason = v1alpha1.PhaseWaiting, decision.Reason
		status.Cluster, status.CopyUID = "", ""
		if before != nil && record.IsGate(before.Reason) && news {
			meta.RemoveStatusCondition(&status.Conditions, v1alpha1.DispatchPlaced) // It waits since now.
		}
		record.SetCondition(status, d, metav1.Condition{
			Type: v1alpha1.DispatchPlaced, Status: metav1.ConditionFalse, Reason: decision.Reason, Message: decision.Message,
		}, r.Clock.Now())
	})
	if err == nil && news {
		r.recordWaiting(f.job, d, decision, explanation)
	}
	return err
}

// previousOf returns the worker on which the copy of a Dispatch ran last: where it is, or where the last attempt was that did not
// end with a refusal. Whether the worker has been lost or drained since makes no difference: it has the job's images and data.
func previousOf(d *v1alpha1.Dispatch) v1alpha1.ClusterName {
	if d.Status.CopyUID != "" && d.Status.Cluster != "" {
		return d.Status.Cluster
	}
	for _, attempt := range slices.Backward(d.Status.History) {
		switch attempt.Outcome {
		case v1alpha1.OutcomeRejected, v1alpha1.OutcomeNameConflict, v1alpha1.OutcomeAdmissionTimeout: // It never ran there.
		default:
			return attempt.Cluster
		}
	}
	return ""
}

// runtimeMissing is what a user can act on.
func runtimeMissing(reference trainer.RuntimeRef) string {
	return fmt.Sprintf("spec.runtimeRef: %s %q is not on the hub; create it there, and the job goes on",
		ptr.Deref(reference.Kind, trainer.ClusterTrainingRuntimeKind), reference.Name)
}
