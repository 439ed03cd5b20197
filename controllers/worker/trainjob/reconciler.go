// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/controllers/worker/trainjob/health"
)

// conflictDelay is how long to wait after a write fails with Conflict. The newer object's event usually comes first.
const conflictDelay = 500 * time.Millisecond

// Clients are the two views of a cluster that a Reconciler needs.
type Clients struct {
	// Cached reads from the cache and writes to the API server.
	Cached client.Client
	// Live reads from the API server.
	Live client.Reader
}

// Reconciler turns the TrainJobs of one cluster into JobSets.
type Reconciler struct {
	client   client.Client
	live     client.Reader
	runtimes map[string]trainerruntime.Runtime
	kinds    []string
	rules    rules
	gate     func(*trainer.TrainJob) (open bool, why string)
	clock    clock.PassiveClock
	announce *announcer
	memory   *memory
	// healthMemory is the memory of package health.
	healthMemory health.Memory
}

// NewReconciler returns a Reconciler. The runtimes come from NewRuntimes and must read through the same cache as the
// client. It uses the options that concern single jobs. Their clock stamps conditions and measures deadlines.
func NewReconciler(
	clients Clients, recorder events.EventRecorder, runtimes map[string]trainerruntime.Runtime, opts Options,
) *Reconciler {
	opts.setDefaults()
	return &Reconciler{
		client:   clients.Cached,
		live:     clients.Live,
		runtimes: runtimes,
		kinds:    slices.Sorted(maps.Keys(runtimes)),
		rules:    rules{extendedConditions: opts.ExtendedConditions, limits: *opts.Health},
		gate:     opts.Gate,
		clock:    opts.Clock,
		announce: &announcer{recorder: recorder, clock: opts.Clock},
		memory:   newMemory(),
	}
}

// Reconcile creates and updates the objects of one TrainJob, and writes its status.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	f, err := r.observe(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	if f.trainJob == nil {
		r.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	now, past := r.clock.Now(), r.memory.recall(f.trainJob)
	f.lastTrouble = past.trouble
	d := decide(f, r.rules, now)
	log := ctrl.LoggerFrom(ctx).WithValues("state", d.state.String())
	ctx = ctrl.LoggerInto(ctx, log)
	log.V(1).Info("Decided", "action", d.action.String(), "recheck", d.recheck, "held", f.held)

	err = r.act(ctx, f, d, past)
	if r.rules.extendedConditions && isLive(d.state) && f.held == "" {
		setResourcesCreated(&d.status, f, d.state, err, now)
	}
	r.tell(f, d, err, past)
	if statusErr := r.writeStatus(ctx, f.trainJob, d.status); statusErr != nil {
		err = errors.Join(err, statusErr)
	} else {
		r.follow(ctx, f, d, past, now)
	}
	return result(d, err)
}

func (r *Reconciler) act(ctx context.Context, f observation, d decision, past *jobMemory) error {
	switch d.action {
	case actionBuild:
		err := r.build(ctx, f, d.state, past)
		return errors.Join(err, r.deleteLeftovers(ctx, f, err, past))
	case actionDeletePredecessor:
		return r.deletePredecessorsJobSet(ctx, f, past)
	case actionDeleteJobSet:
		return r.deleteJobSet(ctx, f.jobSet)
	case actionDeleteTrainJob:
		return r.deleteTrainJob(ctx, f.trainJob)
	case actionNone:
	}
	return nil
}

// follow updates metrics and memory, and reports a failure, once the status says it.
func (r *Reconciler) follow(ctx context.Context, f observation, d decision, past *jobMemory, now time.Time) {
	measureState(f.trainJob, d.state, past, now)
	if d.state != stateComplete && d.state != stateFailed && d.state != stateForeign {
		return
	}
	r.forget(client.ObjectKeyFromObject(f.trainJob))
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

func (r *Reconciler) forget(key types.NamespacedName) {
	r.memory.forget(key)
	r.healthMemory.Forget(key)
}

// deleteJobSet deletes the JobSet. An event says when it is gone.
func (r *Reconciler) deleteJobSet(ctx context.Context, jobSet *jobsetv1alpha2.JobSet) error {
	if err := r.deleteOwner(ctx, jobSet); err != nil {
		return fmt.Errorf("delete JobSet %s: %w", klog.KObj(jobSet), err)
	}
	return nil
}

// deleteOwner deletes the object with this UID, if it exists. The garbage collector deletes what the object owns.
func (r *Reconciler) deleteOwner(ctx context.Context, object client.Object) error {
	uid := object.GetUID()
	err := r.client.Delete(ctx, object, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	return client.IgnoreNotFound(err)
}

// deleteTrainJob deletes a TrainJob after its TTL. It deletes in the foreground, so that a new TrainJob of the same
// name never meets the old JobSet.
func (r *Reconciler) deleteTrainJob(ctx context.Context, job *trainer.TrainJob) error {
	err := r.client.Delete(ctx, job, client.Preconditions{UID: &job.UID, ResourceVersion: &job.ResourceVersion},
		client.PropagationPolicy(metav1.DeletePropagationForeground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete TrainJob %s after its TTL: %w", klog.KObj(job), err)
	}
	ctrl.LoggerFrom(ctx).Info("Deleted TrainJob after its TTL")
	return nil
}

// tell reports news to the TrainJob's owner: problems with its objects, restarts, trouble with its pods.
func (r *Reconciler) tell(f observation, d decision, err error, past *jobMemory) {
	var p *problem
	switch {
	case d.state == stateBlocked && isPredecessors(f.jobSet, f.trainJob): // This is normal and ends by itself.
		r.announce.waiting(f.trainJob, past, conflictMessage(f.jobSet))
	case d.state == stateBlocked:
		r.announce.jobSetTaken(f.trainJob, f.jobSet, past)
	case f.held != "":
		r.announce.held(f.trainJob, past, f.held)
	case isWaiting(err):
		r.announce.waiting(f.trainJob, past, err.Error())
	case errors.As(err, &p) && !isPassing(err):
		r.announce.problem(f.trainJob, p, past)
	case err == nil:
		past.waitingSince, past.told = time.Time{}, "" // If the problem comes back, tell reports it again.
	}
	if !f.ownsJobSet() {
		return
	}
	if restarts := restartsOf(f.jobSet); restarts != past.restarts {
		if past.restarts >= 0 && restarts > past.restarts {
			restartsTotal.Add(float64(restarts - past.restarts))
			r.announce.restarted(f.trainJob, f.jobSet)
		}
		past.restarts = restarts
	}
	r.tellTrouble(f.trainJob, d, past)
}

// tellTrouble reports that trouble has begun or changed, or that it is over for a job that still runs.
func (r *Reconciler) tellTrouble(job *trainer.TrainJob, d decision, past *jobMemory) {
	if !isLive(d.state) {
		return // Until the status says so, the last trouble counts as the cause.
	}
	trouble := ptr.Deref(d.trouble, health.Trouble{})
	before := past.trouble
	past.trouble = trouble
	if trouble == before {
		return
	}
	if trouble.Reason != "" && trouble.Reason != before.Reason {
		stallsTotal.WithLabelValues(trouble.Reason).Inc()
	}
	if trouble.Reason != "" || runs(d.state) {
		r.announce.trouble(job, d.trouble)
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
