// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package nomination

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/internal/inbox"
	"github.com/trainyard/trainyard/internal/requeue"
	"github.com/trainyard/trainyard/remote"
)

// Room is what placement knows about room on workers.
type Room interface {
	// Nominate returns a worker other than except that has room for a job, with reason Fits, or what the nearest worker
	// lacks. No reason: not known yet. Room that is there is kept for the job.
	Nominate(ctx context.Context, job queue.Job, except v1alpha1.ClusterName) (v1alpha1.ClusterExplanation, error)
	// Occupy keeps the room for a job on a worker, whether it is free or not.
	Occupy(job queue.Job, worker v1alpha1.ClusterName)
	// Release gives back what Nominate and Occupy keep for the Workload with this UID, if anything.
	Release(uid types.UID)
	// Subscribe calls changed, which must not block, when Nominate may give another answer.
	Subscribe(changed func()) (cancel func())
}

// Connections are the connections to workers. remote.Fleet has them.
type Connections interface {
	Get(name v1alpha1.ClusterName) (*remote.Cluster, bool)
	// Subscribe calls notify, which must not block, when a connection changes.
	Subscribe(notify func(v1alpha1.ClusterName, remote.Status)) (cancel func())
}

// Options are the options of the controller. All are required.
type Options struct {
	// Hub reads from the hub's caches, whose Workloads are transformed by Strip.
	Hub client.Client
	// Connections are made with remote.Options.Workloads.
	Connections Connections
	// Room finds room for jobs.
	Room Room
	// PodSet returns the demand of a number of equal pods.
	PodSet func(name string, count int32, pod *corev1.PodSpec) (v1alpha1.PodSet, error)
	// Policy returns the DispatchPolicy for the namespace and labels of a Workload, nil if there is none.
	Policy func(ctx context.Context, workload *unstructured.Unstructured) (*v1alpha1.DispatchPolicy, error)
	// Recorder writes Events about Workloads.
	Recorder events.EventRecorder
	// Clock is the clock of this process.
	Clock clock.Clock
}

// Reconciler reconciles Workloads, one at a time.
type Reconciler struct {
	Options
	inbox inbox.Inbox
	// remembered are what is remembered of Workloads that are not ended.
	remembered map[types.NamespacedName]*progress
	waiting    waiting
	announcer  announcer
	// recalled: the room of all Workloads that were on workers at the start is taken.
	recalled bool
}

// NewReconciler makes the controller's reconciler.
func NewReconciler(options Options) *Reconciler {
	return &Reconciler{
		Options: options, remembered: map[types.NamespacedName]*progress{},
		waiting:   waiting{keys: map[types.NamespacedName]bool{}},
		announcer: announcer{recorder: options.Recorder, said: map[types.NamespacedName]said{}},
	}
}

// These keys are not of Workloads: the waiting list, and everything that may have to be nominated.
var waitingList, everything = types.NamespacedName{}, types.NamespacedName{Namespace: "*"}

// Reconcile looks at one Workload, or nominates workers for the Workloads that need one.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := request.NamespacedName
	switch key {
	case waitingList:
		return requeue.AfterConflict(r.serve(ctx))
	case everything:
		return reconcile.Result{}, r.wakeAll(ctx)
	}
	o, err := r.observe(ctx, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	what := decide(o, r.Clock.Now())
	log.FromContext(ctx).V(1).Info("Decided", "state", what)
	if what == unplaced || what == refused {
		r.waiting.enter(key)
		r.inbox.Add(waitingList)
		return reconcile.Result{}, nil
	}
	r.waiting.leave(key)
	return requeue.AfterConflict(r.act(ctx, o, what))
}

// wakeAll looks at every Workload that may have to be nominated.
func (r *Reconciler) wakeAll(ctx context.Context) error {
	all, err := r.list(ctx)
	for i := range all {
		if w, err := parse(&all[i]); err == nil && w.awaitsNomination() {
			r.inbox.Add(client.ObjectKeyFromObject(w.object))
		}
	}
	return err
}

func (r *Reconciler) list(ctx context.Context) ([]unstructured.Unstructured, error) {
	all := kueues.KindWorkload.NewList()
	if err := r.Hub.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Workloads: %w", err)
	}
	return all.Items, nil
}

// observe reads a Workload, what MultiKueue may do with it, and its clones.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (*observation, error) {
	o := &observation{key: key, clones: map[v1alpha1.ClusterName]clone{}}
	object := kueues.KindWorkload.New()
	switch err := r.Hub.Get(ctx, key, object); {
	case apierrors.IsNotFound(err):
		return o, nil
	case err != nil:
		return nil, fmt.Errorf("get Workload %s: %w", key, err)
	}
	w, err := parse(object)
	if err != nil {
		return nil, reconcile.TerminalError(fmt.Errorf("read Workload %s: %w", key, err))
	}
	o.workload = w
	if o.targets, err = r.targetsOf(ctx, w); err != nil || !w.awaitsNomination() || o.targets.check == "" {
		return o, err
	}
	for _, name := range o.targets.clusters {
		if o.clones[name], err = r.clone(ctx, name, key); err != nil {
			return nil, err
		}
	}
	policy, err := r.Policy(ctx, w.object)
	if err != nil {
		return nil, fmt.Errorf("find DispatchPolicy of Workload %s: %w", key, err)
	}
	o.timeout = policy.Rules().AdmissionTimeout.Duration
	m := r.progress(key, w.UID)
	m.look(o.nominee(), o.clones[o.nominee()].state, r.Clock.Now())
	o.nominated, o.cloned, o.preempting = m.nominated, m.cloned, m.preempting
	return o, nil
}

// clone reads the clone of a Workload from a worker's cache.
func (r *Reconciler) clone(ctx context.Context, name v1alpha1.ClusterName, key types.NamespacedName) (clone, error) {
	worker, ok := r.Connections.Get(name)
	if !ok || worker.Status().State != remote.Connected {
		return clone{}, nil
	}
	object := kueues.KindWorkload.New()
	switch err := worker.Cache().Get(ctx, key, object); {
	case apierrors.IsNotFound(err):
		return clone{state: missing}, nil
	case err != nil: // Nobody lets the hub read it.
		return clone{}, nil //nolint:nilerr // The worker's Workloads are not listed: unreadable says so.
	}
	seen, err := readClone(object)
	if err != nil {
		return clone{}, reconcile.TerminalError(fmt.Errorf("read Workload %s on worker %q: %w", key, name, err))
	}
	return seen, nil
}

// progress returns what is remembered of a Workload. A Workload of the same name that has been created again is another
// Workload.
func (r *Reconciler) progress(key types.NamespacedName, uid types.UID) *progress {
	m := r.remembered[key]
	if m != nil && m.uid != uid {
		r.Room.Release(m.uid)
		m = nil
	}
	if m == nil {
		m = &progress{uid: uid}
		r.remembered[key] = m
	}
	return m
}

// act does what the state of a Workload requires that needs no other worker.
func (r *Reconciler) act(ctx context.Context, o *observation, what state) (reconcile.Result, error) {
	switch what {
	case ended:
		r.forget(o.key)
	case unready:
		r.Room.Release(o.workload.UID)
		r.announcer.explain(o, what)
	case misconfigured, foreign:
		r.progress(o.key, o.workload.UID) // It gives back the room of an earlier Workload of this name.
		r.Room.Release(o.workload.UID)
		r.announcer.explain(o, what)
	case settled:
		return r.settle(o)
	case crossed:
		return reconcile.Result{}, r.nominate(ctx, o, o.admitting(), "the worker has admitted the job")
	case granted, away, following:
		if err := r.occupy(o, o.nominee()); err != nil {
			return reconcile.Result{}, err
		}
		r.announcer.explain(o, what)
		if due := o.due(); what == following && !due.IsZero() {
			return reconcile.Result{RequeueAfter: max(due.Sub(r.Clock.Now()), time.Millisecond)}, nil
		}
	case refused, unplaced: // They are on the waiting list.
	}
	return reconcile.Result{}, nil
}

// forget gives everything back that a Workload has.
func (r *Reconciler) forget(key types.NamespacedName) {
	r.announcer.forget(key)
	if m := r.remembered[key]; m != nil {
		r.Room.Release(m.uid)
		delete(r.remembered, key)
	}
}

// settle keeps the room of a Workload that is on a worker until the worker's nodes count its pods.
func (r *Reconciler) settle(o *observation) (reconcile.Result, error) {
	w, m := o.workload, r.progress(o.key, o.workload.UID)
	if m.settled.IsZero() {
		m.settled, m.refusals = r.Clock.Now(), nil
		r.announcer.forget(o.key)
	}
	if _, countable := w.gang(); countable {
		return reconcile.Result{}, r.occupy(o, v1alpha1.ClusterName(w.Status.ClusterName))
	}
	left := m.settled.Add(podsTime).Sub(r.Clock.Now())
	if left <= 0 || w.Is(kueues.PodsReady) {
		r.Room.Release(w.UID)
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: left}, r.occupy(o, v1alpha1.ClusterName(w.Status.ClusterName))
}

// occupy keeps the room of a Workload on a worker.
func (r *Reconciler) occupy(o *observation, worker v1alpha1.ClusterName) error {
	job, err := r.job(o)
	if err != nil {
		return err
	}
	r.Room.Occupy(job, worker)
	return nil
}
