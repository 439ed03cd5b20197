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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// conflictDelay is how long to wait after a write that met a newer object. Its event usually comes first.
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
	clock    clock.PassiveClock
	announce *announcer
}

// NewReconciler returns a Reconciler. The runtimes come from NewRuntimes and must read through the same cache as the client. The
// clock stamps conditions and is what deadlines are measured by.
func NewReconciler(
	clients Clients, recorder events.EventRecorder, runtimes map[string]trainerruntime.Runtime, c clock.PassiveClock,
) *Reconciler {
	return &Reconciler{
		client:   clients.Cached,
		live:     clients.Live,
		runtimes: runtimes,
		kinds:    slices.Sorted(maps.Keys(runtimes)),
		clock:    c,
		announce: newAnnouncer(recorder, c),
	}
}

// Reconcile brings one TrainJob's objects and status to what they should be.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	f, err := r.observe(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	if f.trainJob == nil {
		r.announce.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	d := decide(f, r.clock.Now())
	log := ctrl.LoggerFrom(ctx).WithValues("state", d.state.String())
	ctx = ctrl.LoggerInto(ctx, log)
	log.V(1).Info("Decided", "recheck", d.recheck)

	switch d.state {
	case stateSuspended, statePending, stateResuming, stateRunning:
		err = r.build(ctx, f.trainJob, d.state)
	case stateBlocked:
		r.tellBlocked(f)
	case stateStopping:
		err = r.deleteJobSet(ctx, f.jobSet)
	case stateForeign, stateDeleting, stateFinished, stateUnsupported, stateEnding, stateExpired:
		// There is nothing to do but, at most, to write the status.
	}
	r.tell(f.trainJob, d.state, err)
	err = errors.Join(err, r.writeStatus(ctx, f.trainJob, d))
	return result(d, err)
}

// observe reads what decide needs. Without a TrainJob, the facts are empty.
//
// If there is no JobSet, the next step may be to create one, so the TrainJob is then read again, from the API server. The cache
// of JobSets can be ahead of the cache of TrainJobs: it may have dropped the JobSet of a job whose end, or whose deletion, the
// other one has yet to see, and the job would run again.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (facts, error) {
	job := &trainer.TrainJob{}
	if err := r.client.Get(ctx, key, job); apierrors.IsNotFound(err) {
		return facts{}, nil
	} else if err != nil {
		return facts{}, fmt.Errorf("get TrainJob %s: %w", key, err)
	}
	f := facts{trainJob: job, runtimeKinds: r.kinds}
	if resting(job) {
		return f, nil
	}
	if err := r.observeJobSet(ctx, &f); err != nil || f.jobSet != nil || hasEnded(&job.Status) {
		return f, err
	}
	f.trainJob = &trainer.TrainJob{}
	if err := r.live.Get(ctx, key, f.trainJob); apierrors.IsNotFound(err) {
		return facts{}, nil
	} else if err != nil {
		return facts{}, fmt.Errorf("get TrainJob %s: %w", key, err)
	}
	return f, nil
}

// observeJobSet reads the JobSet of the TrainJob's name and, if it is the TrainJob's, what it means for the TrainJob's status.
func (r *Reconciler) observeJobSet(ctx context.Context, f *facts) error {
	key := client.ObjectKeyFromObject(f.trainJob)
	jobSet := &jobsetv1alpha2.JobSet{}
	if err := r.client.Get(ctx, key, jobSet); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("get JobSet %s: %w", key, err)
	}
	f.jobSet = jobSet
	runtime, ok := r.runtimes[runtimeKind(f.trainJob)]
	if !ok || !f.ownsJobSet() {
		return nil
	}
	reported, err := runtime.TrainJobStatus(ctx, f.trainJob)
	if apierrors.IsNotFound(err) { // The cache has dropped the JobSet since.
		f.jobSet = nil
		return nil
	} else if err != nil {
		return fmt.Errorf("derive status of TrainJob %s: %w", key, err)
	}
	f.reported = reported
	return nil
}

// deleteJobSet deletes the JobSet, unless that is under way. Its end comes as an event.
func (r *Reconciler) deleteJobSet(ctx context.Context, jobSet *jobsetv1alpha2.JobSet) error {
	if !jobSet.DeletionTimestamp.IsZero() {
		return nil
	}
	err := r.client.Delete(ctx, jobSet,
		client.Preconditions{UID: &jobSet.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete JobSet %s: %w", klog.KObj(jobSet), err)
	}
	return nil
}

// tellBlocked leaves out the JobSet of an earlier TrainJob of the same name: it is normal, and it goes by itself.
func (r *Reconciler) tellBlocked(f facts) {
	if !isPredecessors(f.jobSet, f.trainJob) {
		r.announce.jobSetTaken(f.trainJob, f.jobSet)
	}
}

// tell announces the problem in err, or that there is none any more.
func (r *Reconciler) tell(job *trainer.TrainJob, s state, err error) {
	var p *problem
	switch {
	case errors.As(err, &p) && !isPassing(err):
		r.announce.problem(job, p)
	case err == nil && s != stateBlocked:
		r.announce.forget(client.ObjectKeyFromObject(job))
	}
}

// result is the one place where errors that are part of normal life end.
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

// isPassing says whether all of err is that somebody else was faster, or that the namespace or the TrainJob is going.
func isPassing(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { // What Reconcile has joined.
		return !slices.ContainsFunc(joined.Unwrap(), func(e error) bool { return !isPassing(e) })
	}
	return errors.Is(err, errPredecessor) || apierrors.IsConflict(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}
