// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"errors"
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// conflictDelay is how long to wait after a write fails with Conflict. The newer object's event usually comes first.
const conflictDelay = 500 * time.Millisecond

// Reconciler turns the TrainJobs of one cluster into JobSets. It decides and calls its parts, which do the work.
type Reconciler struct {
	clients   Clients
	framework *framework
	observer  *observer
	objects   *objectBuilder
	leftovers *leftovers
	announce  *announcer
	known     *knownJobs
	rules     rules
	clock     clock.PassiveClock
	// started is Options.Started.
	started func(context.Context, *trainer.TrainJob, *jobsetv1alpha2.JobSet)
}

// newReconciler returns a Reconciler. The runtimes come from NewRuntimes and must read through the same cache as the
// client. It uses the options that concern single jobs. Their clock stamps conditions and measures deadlines.
func newReconciler(
	clients Clients, recorder events.EventRecorder, runtimes map[string]trainerruntime.Runtime, opts Options,
) *Reconciler {
	opts.setDefaults()
	r := &Reconciler{
		clients:   clients,
		framework: newFramework(runtimes, clients.Cached),
		announce:  &announcer{recorder: recorder, clock: opts.Clock},
		known:     newKnownJobs(),
		rules:     rules{extendedConditions: opts.ExtendedConditions, limits: *opts.Health},
		clock:     opts.Clock,
		started:   opts.Started,
	}
	r.observer = &observer{clients: clients, framework: r.framework, known: r.known, gate: opts.Gate, clock: opts.Clock}
	r.leftovers = &leftovers{clients: clients, framework: r.framework, clock: opts.Clock}
	r.objects = &objectBuilder{
		clients: clients, framework: r.framework, leftovers: r.leftovers, announce: r.announce, known: r.known, clock: opts.Clock,
	}
	return r
}

// Reconcile creates and updates the objects of one TrainJob, and writes its status.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	f, err := r.observer.observe(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	if f.trainJob == nil {
		r.known.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	now, past := r.clock.Now(), r.known.recall(f.trainJob)
	f.lastTrouble = past.trouble
	d := decide(f, r.rules, now)
	log := ctrl.LoggerFrom(ctx).WithValues("state", d.state.String())
	ctx = ctrl.LoggerInto(ctx, log)
	log.V(1).Info("Decided", "action", d.action.String(), "recheck", d.recheck, "held", f.held)

	err = r.act(ctx, f, d, past)
	if r.rules.extendedConditions && isLive(d.state) && f.held == "" {
		setResourcesCreated(&d.status, f, d.state, err, now)
	}
	r.announce.report(f, d, err, past)
	if statusErr := r.clients.writeStatus(ctx, f.trainJob, d.status); statusErr != nil {
		err = errors.Join(err, statusErr)
	} else {
		r.follow(ctx, f, d, past, now)
	}
	return result(d, errors.Join(err, r.reportToHub(ctx, f, d, err))) // Last: the status is written with a lock.
}

func (r *Reconciler) act(ctx context.Context, f observation, d decision, past *knownJob) error {
	if isCopy(f.trainJob) && f.ownsJobSet() && f.jobSet.Spec.TTLSecondsAfterFinished != nil {
		if err := r.clients.keepJobSet(ctx, f.jobSet); err != nil {
			return err
		}
	}
	switch d.action {
	case actionBuild:
		err := r.objects.build(ctx, f, d.state, past)
		return errors.Join(err, r.leftovers.deleteAwaited(ctx, f, err, past))
	case actionDeletePredecessor:
		return r.leftovers.deleteJobSet(ctx, f, past)
	case actionDeleteJobSet:
		return r.clients.deleteJobSet(ctx, f.jobSet)
	case actionDeleteTrainJob:
		return r.clients.deleteTrainJob(ctx, f.trainJob)
	case actionNone:
	}
	return nil
}

// follow updates metrics and what is remembered, and reports a failure, once the status says it.
func (r *Reconciler) follow(ctx context.Context, f observation, d decision, past *knownJob, now time.Time) {
	if measureState(f.trainJob, d.state, past, now) {
		r.started(ctx, f.trainJob, f.jobSet)
	}
	if d.state != stateComplete && d.state != stateFailed && d.state != stateForeign {
		return
	}
	r.known.forget(client.ObjectKeyFromObject(f.trainJob))
	end := endOf(&d.status)
	if end == nil || hasEnded(&f.trainJob.Status) {
		return
	}
	measureEnd(f.trainJob, end, now)
	ctrl.LoggerFrom(ctx).Info("TrainJob has finished", "condition", end.Type, "reason", end.Reason, "message", end.Message)
	if d.failure != "" {
		r.announce.failed(f.trainJob, d.failure)
	}
}

// isLive says whether a job in this state has not ended and is not being deleted.
func isLive(s state) bool {
	return s >= stateBlocked
}

// result turns errors that are normal into a short delay. It is the only place that does so.
func result(d decision, err error) (ctrl.Result, error) {
	switch {
	case err == nil:
		return ctrl.Result{RequeueAfter: d.recheck}, nil
	case isPassing(err):
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	default:
		return ctrl.Result{}, err
	}
}

// isWaiting says whether err means that the job waits for a deletion or an end that others bring about.
func isWaiting(err error) bool {
	return errors.Is(err, errPredecessor) || errors.Is(err, errPodsLeft) || errors.Is(err, errEarlierJobs) || errors.Is(err, errJobsLeft)
}

// isPassing says whether each part of err is normal: a conflict, a wait, or a namespace that is being deleted.
func isPassing(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { // Reconcile joined these errors.
		return !slices.ContainsFunc(joined.Unwrap(), func(e error) bool { return !isPassing(e) })
	}
	return isWaiting(err) ||
		apierrors.IsConflict(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}
