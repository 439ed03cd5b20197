// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package moves

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/inbox"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// Room is what placement knows about room on workers.
type Room interface {
	// Elsewhere says whether a placed job would get room on another worker now. It returns that worker and reason Fits,
	// or the nearest worker and what it lacks. An empty reason means that this is not known yet. Elsewhere keeps the
	// room until the job is placed there or ends, or until Release. full has the answers about jobs of the same worker
	// that fit nowhere, to which Elsewhere adds: jobs like them get the same answer. Nil: there are none.
	Elsewhere(ctx context.Context, dispatch *v1alpha1.Dispatch, full map[string]v1alpha1.ClusterExplanation) (v1alpha1.ClusterExplanation, error)
	// Release gives back the room that is kept for the TrainJob with this UID, if any.
	Release(origin types.UID)
	// Subscribe calls changed, which must not block, when Elsewhere may give another answer.
	Subscribe(changed func()) (cancel func())
}

// Options are the options of the controller. All are required.
type Options struct {
	// Hub reads from the hub's caches, which have the indexes of package records.
	Hub client.Client
	// Room finds room for jobs on other workers.
	Room Room
	// Policy returns the DispatchPolicy of a hub TrainJob, nil if there is none.
	Policy func(ctx context.Context, job *unstructured.Unstructured) (*v1alpha1.DispatchPolicy, error)
	// Clock is the clock of this process.
	Clock clock.Clock
}

// Reconciler reconciles WorkerClusters, one at a time.
type Reconciler struct {
	Options
	inbox   inbox.Inbox
	workers map[v1alpha1.ClusterName]*workerJobs
	// written has the evictions that the cache may not show yet, by the UID of the TrainJob.
	written map[types.UID]eviction
	// moving is when this process first saw each job on its way to another worker, by the UID of the TrainJob.
	moving map[types.UID]time.Time

	mu sync.Mutex
	// cares has the workers for which events elsewhere matter. timeouts: some policy has an admissionTimeout. Under mu.
	cares    map[v1alpha1.ClusterName]interest
	timeouts bool
}

// workerJobs is what the controller remembers about the jobs of one worker, by the UIDs of their TrainJobs.
type workerJobs struct {
	waiting  waiting
	reported map[types.UID]nearest
}

type eviction struct {
	key     types.NamespacedName
	attempt int32
	// policy is the job's policy. counts: the eviction counts against its budget.
	policy *v1alpha1.DispatchPolicy
	counts bool
}

// NewReconciler makes the controller's reconciler.
func NewReconciler(options Options) *Reconciler {
	return &Reconciler{
		Options: options,
		workers: map[v1alpha1.ClusterName]*workerJobs{},
		written: map[types.UID]eviction{},
		moving:  map[types.UID]time.Time{},
		cares:   map[v1alpha1.ClusterName]interest{},
	}
}

// Reconcile decides about all jobs of one worker.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	name := v1alpha1.ClusterName(request.Name)
	worker := &v1alpha1.WorkerCluster{}
	if err := r.Hub.Get(ctx, request.NamespacedName, worker); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if err := r.readTimeouts(ctx); err != nil {
		return reconcile.Result{}, err
	}
	r.care(name, worker.Spec.Drain, r.hasTimeouts()) // From now on events wake us.
	jobs, err := r.observe(ctx, worker)
	if err != nil {
		return reconcile.Result{}, err
	}
	return requeue.AfterConflict(r.actOn(ctx, worker, jobs))
}

// homeOf returns the state of a worker. A worker whose capacity is not known can still stop jobs, so it is not silent.
func homeOf(worker *v1alpha1.WorkerCluster) home {
	switch {
	case !worker.Status.Answers():
		return silent
	case worker.Spec.Drain:
		return draining
	default:
		return open
	}
}

// observe reads the live jobs of a worker that may need something done, by priority. Among jobs of equal priority, those
// that lose the least are first.
func (r *Reconciler) observe(ctx context.Context, worker *v1alpha1.WorkerCluster) ([]observation, error) {
	name := v1alpha1.ClusterName(worker.Name)
	dispatches, err := records.Live(ctx, r.Hub, name)
	if err != nil {
		return nil, err
	}
	past := r.remember(name, dispatches)
	var jobs []observation
	for i := range dispatches {
		f := observation{dispatch: &dispatches[i], home: homeOf(worker)}
		if err := r.complete(ctx, &f, past); err != nil {
			return nil, err
		}
		jobs = append(jobs, f)
	}
	slices.SortFunc(jobs, func(a, b observation) int {
		return cmp.Or(cmp.Compare(b.dispatch.Spec.Priority, a.dispatch.Spec.Priority),
			record.UnsavedSince(b.dispatch).Compare(record.UnsavedSince(a.dispatch)),
			a.dispatch.CreationTimestamp.Compare(b.dispatch.CreationTimestamp.Time), cmp.Compare(a.dispatch.UID, b.dispatch.UID))
	})
	return jobs, nil
}

// complete reads the job and the policy of a Dispatch, if they matter.
func (r *Reconciler) complete(ctx context.Context, f *observation, past *workerJobs) error {
	d := f.dispatch
	written, ok := r.written[d.Spec.TrainJob.UID]
	f.written = ok && written.attempt == d.Spec.Attempt
	maybe := r.hasTimeouts() && f.home == open && mayBeHeld(d)
	if f.home != draining && !maybe {
		f.patience = past.waiting.observe(d, false, r.Clock.Now())
		return nil
	}
	key := client.ObjectKeyFromObject(d)
	job, err := records.Job(ctx, r.Hub, key)
	if job == nil {
		return err
	}
	f.job = job
	f.patience = past.waiting.observe(d, maybe && isHeld(d, job), r.Clock.Now())
	policy, err := r.Policy(ctx, job)
	if err != nil {
		return fmt.Errorf("find DispatchPolicy of TrainJob %s: %w", key, err)
	}
	f.policy = policy
	return nil
}

// remember returns what is known about the jobs that a worker still has.
func (r *Reconciler) remember(name v1alpha1.ClusterName, dispatches []v1alpha1.Dispatch) *workerJobs {
	past, next := r.workers[name], &workerJobs{waiting: waiting{}, reported: map[types.UID]nearest{}}
	for i := range dispatches {
		uid := dispatches[i].Spec.TrainJob.UID
		if past == nil {
			break
		}
		if p, known := past.waiting[uid]; known {
			next.waiting[uid] = p
		}
		if s, known := past.reported[uid]; known {
			next.reported[uid] = s
		}
	}
	r.workers[name] = next
	return next
}

type turn struct {
	spent budgets
	// full is that of Room.Elsewhere.
	full map[string]v1alpha1.ClusterExplanation
	// due is when to look at the worker again.
	due *time.Time
}

// actOn acts on each job. An error of one job does not stop the others.
func (r *Reconciler) actOn(ctx context.Context, worker *v1alpha1.WorkerCluster, jobs []observation) (reconcile.Result, error) {
	name := v1alpha1.ClusterName(worker.Name)
	spent, due, err := r.spent(ctx, homeOf(worker))
	if err != nil {
		return reconcile.Result{}, err
	}
	t := turn{spent: spent, full: map[string]v1alpha1.ClusterExplanation{}, due: &due}
	var errs []error
	overdues := false
	for _, f := range jobs {
		if !worker.Spec.Drain {
			errs = append(errs, r.clear(ctx, f.dispatch))
		}
		what := decide(f, r.Clock.Now())
		log.FromContext(ctx).V(1).Info("Decided", "dispatch", client.ObjectKeyFromObject(f.dispatch), "state", what)
		errs = append(errs, r.act(ctx, what, f, t))
		overdues = overdues || what == overdue
		if at := f.patience.due(f.timeout()); what == held {
			due = requeue.Earlier(due, at)
		}
	}
	r.care(name, worker.Spec.Drain, overdues)
	if due.IsZero() {
		return reconcile.Result{}, worst(errs)
	}
	return reconcile.Result{RequeueAfter: max(due.Sub(r.Clock.Now()), time.Millisecond)}, worst(errs)
}

// worst returns one of the errors. It returns a conflict only if there is no other error, because a conflict is retried
// without a log line.
func worst(errs []error) error {
	var conflict error
	others := slices.DeleteFunc(errs, func(err error) bool {
		if apierrors.IsConflict(err) {
			conflict = err
			return true
		}
		return err == nil
	})
	if len(others) == 0 {
		return conflict
	}
	return errors.Join(others...)
}

func (r *Reconciler) act(ctx context.Context, what state, f observation, t turn) error {
	switch what {
	case leaving:
		return r.keepRoom(ctx, f)
	case displaced:
		return r.displace(ctx, f, t)
	case overdue:
		return r.giveUp(ctx, f)
	case left, away, settled, held:
	}
	return nil
}
