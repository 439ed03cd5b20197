// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/inbox"
	"github.com/trainyard/trainyard/controllers/placement/demand"
	"github.com/trainyard/trainyard/dispatch"
)

const (
	fieldOwner    = client.FieldOwner("trainyard")
	conflictDelay = 20 * time.Millisecond
)

// Options of the controller. All are required.
type Options struct {
	// Hub reads from the hub's caches: TrainJobs unstructured, Namespaces as metadata.
	Hub client.Client
	// ManagedBy is the value of spec.managedBy that this manager owns.
	ManagedBy string
	// Connections have the workers' inventories.
	Connections Connections
	// Recorder records Events on hub TrainJobs.
	Recorder events.EventRecorder
	// Clock of this process.
	Clock clock.Clock
}

// Reconciler reconciles hub TrainJobs.
type Reconciler struct {
	Options
	policies Policies
	// compiled are the expressions of policies.
	compiled compiled
	demands  *demand.Deriver
	capacity *capacity
	line     line
	inbox    inbox.Inbox
	wake     chan struct{}

	mu sync.Mutex
	// remembered is what is known of unplaced jobs beyond the caches, under mu.
	remembered map[types.NamespacedName]memory
}

// memory is about one unplaced job.
type memory struct {
	uid types.UID
	// noticed is when the job was first seen.
	noticed time.Time
	// attempt is the last one of a Dispatch that somebody has deleted, and previous where the job ran by it.
	attempt  int32
	previous v1alpha1.ClusterName
}

// NewReconciler makes the controller's reconciler.
func NewReconciler(ctx context.Context, options Options) (*Reconciler, error) {
	demands, err := demand.NewDeriver(ctx, options.Hub)
	if err != nil {
		return nil, err
	}
	return &Reconciler{
		Options:  options,
		policies: Policies{Hub: options.Hub},
		demands:  demands,
		capacity: newCapacity(options.Connections),
		wake:     make(chan struct{}, 1),

		remembered: map[types.NamespacedName]memory{},
	}, nil
}

// Reconcile places one TrainJob, or says why it waits.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := request.NamespacedName
	f, err := r.observe(ctx, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	what := classify(r.ManagedBy, f)
	log.FromContext(ctx).V(1).Info("Classified", "state", what)
	var result reconcile.Result
	switch what {
	case settled:
		r.leaveLine(key)
		r.forget(key)
		if f.job != nil && r.capacity.suspend(f.job.GetUID(), trainjobs.Suspended(f.job)) {
			r.signal()
		}
	case occupied:
		r.leaveLine(key)
	case orphaned:
		r.leaveLine(key)
		err = client.IgnoreNotFound(r.Hub.Delete(ctx, f.dispatch, client.Preconditions{UID: &f.dispatch.UID}))
	case suspended:
		r.leaveLine(key)
		err = r.gate(ctx, f)
	case unplaced:
		result, err = r.place(ctx, f)
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return reconcile.Result{RequeueAfter: conflictDelay}, nil
	}
	return result, err
}

// observe reads the job and its Dispatch from the caches.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (facts, error) {
	var f facts
	job := trainjobs.New()
	switch err := r.Hub.Get(ctx, key, job); {
	case err == nil:
		f.job = job
	case !apierrors.IsNotFound(err):
		return f, fmt.Errorf("get TrainJob %s: %w", key, err)
	}
	d := &v1alpha1.Dispatch{}
	switch err := r.Hub.Get(ctx, key, d); {
	case err == nil:
		f.dispatch = d
	case !apierrors.IsNotFound(err):
		return f, fmt.Errorf("get Dispatch %s: %w", key, err)
	}
	return f, nil
}

// place finds a worker for a job and records it, or records why there is none. The job stands in line before it is decided on, so
// that what changes in between finds it there.
func (r *Reconciler) place(ctx context.Context, f facts) (reconcile.Result, error) {
	if r.capacity.decided(f.job.GetUID()) >= r.nextAttempt(f) {
		return reconcile.Result{}, nil // Written already; the cache will show it.
	}
	noticed := r.notice(f)
	wanted, verdict, err := r.candidate(ctx, f)
	if err != nil {
		return reconcile.Result{}, err
	}
	if verdict != nil {
		r.standInLine(f, "/"+verdict.Reason)
		return r.wait(ctx, f, wanted, "", *verdict)
	}
	var expire time.Duration
	wanted.job.Excluded, expire = excluded(f.dispatch, r.Clock.Now())
	class := classOf(wanted)
	r.standInLine(f, class)
	if r.line.behind(wanted.key) {
		result, err := r.wait(ctx, f, wanted, class, dispatch.Decision{
			Reason: v1alpha1.ReasonNoFit, Message: "older jobs with the same demand wait too",
		})
		return sooner(result, expire), err
	}
	decision := r.capacity.decide(wanted)
	if decision.Cluster == "" {
		r.line.wait(wanted.key)
		result, err := r.wait(ctx, f, wanted, class, decision)
		return sooner(result, expire), err
	}
	if err := r.record(ctx, f, wanted, decision); err != nil {
		if r.capacity.forget(wanted.job.UID, wanted.attempt) {
			r.signal() // Others may have been told that there is no room because of this one.
		}
		return reconcile.Result{}, err
	}
	timeToPlace.Observe(r.Clock.Since(noticed).Seconds())
	r.forget(wanted.key)
	r.leaveLine(wanted.key)
	return reconcile.Result{}, nil
}

// candidate gathers what the decision needs. A verdict says that the job waits whatever the workers have.
func (r *Reconciler) candidate(ctx context.Context, f facts) (candidate, *dispatch.Decision, error) {
	wanted := candidate{key: client.ObjectKeyFromObject(f.job), attempt: r.nextAttempt(f)}
	policies, namespaceLabels, err := r.policies.inputs(ctx, f.job)
	if err != nil {
		return wanted, nil, err
	}
	wanted.policies = r.compiled.of(policies)
	var workers v1alpha1.WorkerClusterList
	if err := r.Hub.List(ctx, &workers, client.UnsafeDisableDeepCopy); err != nil {
		return wanted, nil, fmt.Errorf("list WorkerClusters: %w", err)
	}
	wanted.workers = workers.Items
	wanted.job = dispatch.Job{
		UID: f.job.GetUID(), Name: f.job.GetName(), Namespace: f.job.GetNamespace(),
		Labels: f.job.GetLabels(), Annotations: f.job.GetAnnotations(), NamespaceLabels: namespaceLabels,
		Previous: r.previous(f),
	}

	typed, err := trainjobs.Typed(f.job)
	if err != nil {
		return wanted, &dispatch.Decision{Reason: v1alpha1.ReasonInvalidRuntime, Message: err.Error()}, nil //nolint:nilerr // It is the verdict.
	}
	reference := typed.Spec.RuntimeRef
	needs, err := r.demands.Of(ctx, typed)
	wanted.job.PodSets = needs.PodSets
	var status apierrors.APIStatus
	switch {
	case errors.Is(err, demand.ErrRuntimeNotFound):
		return wanted, &dispatch.Decision{Reason: v1alpha1.ReasonRuntimeNotFound, Message: runtimeMissing(reference)}, nil
	case errors.As(err, &status):
		return wanted, nil, err
	case err != nil:
		return wanted, &dispatch.Decision{Reason: v1alpha1.ReasonInvalidRuntime, Message: err.Error()}, nil //nolint:nilerr // It is the verdict.
	}
	return wanted, nil, nil
}

// classOf names the class of jobs for which the same decision holds: those of equal demand and with the same pin under the same
// policy that the same workers have refused, and of which its expression says the same.
func classOf(wanted candidate) string {
	hash := fnv.New128a()
	encoder := json.NewEncoder(hash)
	policy, _, err := dispatch.SelectPolicy(wanted.policies, wanted.job)
	if policy != nil {
		_ = encoder.Encode([]any{policy.UID, policy.Generation})
	} else if err != nil {
		_ = encoder.Encode(err.Error())
	}
	// Maps are encoded in the order of their keys, and a hash takes everything, so there is no error.
	_ = encoder.Encode(wanted.job.PodSets)
	_ = encoder.Encode(slices.Sorted(maps.Keys(wanted.job.Excluded)))
	pin, pinned := wanted.job.Annotations[v1alpha1.AnnotationClusters]
	_ = encoder.Encode([]any{pin, pinned})
	if policy != nil {
		_ = encoder.Encode(keyOf(policy.Expression, &wanted.job))
	}
	return string(hash.Sum(nil))
}

func placeOf(f facts, class string) place {
	return place{
		key: client.ObjectKeyFromObject(f.job), uid: f.job.GetUID(), class: class, created: f.job.GetCreationTimestamp().Time,
	}
}

// standInLine puts a job in line, and has the next of the kind that it was of looked at.
func (r *Reconciler) standInLine(f facts, class string) {
	if next, ok := r.line.stand(placeOf(f, class)); ok {
		r.inbox.Add(next)
	}
}

// leaveLine takes a job out of line and has the next of its kind looked at.
func (r *Reconciler) leaveLine(key types.NamespacedName) {
	if next, ok := r.line.leave(key); ok {
		r.inbox.Add(next)
	}
}

// recall returns what is remembered of a job; of another one of the same name, nothing. The caller holds mu.
func (r *Reconciler) recall(f facts) memory {
	m := r.remembered[client.ObjectKeyFromObject(f.job)]
	if m.uid != f.job.GetUID() {
		m = memory{uid: f.job.GetUID(), noticed: r.Clock.Now()}
	}
	return m
}

// notice returns when an unplaced job was first seen.
func (r *Reconciler) notice(f facts) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.recall(f)
	r.remembered[client.ObjectKeyFromObject(f.job)] = m
	return m.noticed
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.remembered, key)
}

// nextAttempt goes on counting from the Dispatch, or from the one that somebody has deleted.
func (r *Reconciler) nextAttempt(f facts) int32 {
	if f.dispatch != nil {
		return f.dispatch.Spec.Attempt + 1
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.recall(f).attempt + 1
}

// rememberAttempt keeps the attempt of a Dispatch that has been deleted, in case its job goes on.
func (r *Reconciler) rememberAttempt(d *v1alpha1.Dispatch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(d)
	m := r.remembered[key]
	if m.uid != d.Spec.TrainJob.UID {
		m = memory{uid: d.Spec.TrainJob.UID, noticed: r.Clock.Now()}
	}
	m.attempt = max(m.attempt, d.Spec.Attempt)
	m.previous = previousOf(d)
	r.remembered[key] = m
}

// previous returns the worker on which a job ran last, empty if it never did.
func (r *Reconciler) previous(f facts) v1alpha1.ClusterName {
	if f.dispatch != nil {
		return previousOf(f.dispatch)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.recall(f).previous
}

// sooner makes a result come back after a delay at the latest; zero is never.
func sooner(result reconcile.Result, delay time.Duration) reconcile.Result {
	if delay > 0 && (result.RequeueAfter == 0 || delay < result.RequeueAfter) {
		result.RequeueAfter = delay
	}
	return result
}
