// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/hubcache"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
	"github.com/trainyard/trainyard/logarchive"
)

const (
	// maxKept bounds how many attempts are remembered as kept. Of the others the archive is asked.
	maxKept = 10_000
	// keptFor is how long an attempt is remembered as kept.
	keptFor = 24 * time.Hour
)

// Options are the options of the controller of one worker. All are required.
type Options struct {
	Cluster   v1alpha1.ClusterName
	ClusterID types.UID
	// Hub reads from the hub's caches, and Worker from those of the worker.
	Hub, Worker client.Reader
	// Connect returns a client of the worker for pods and logs. It is not the client of the other controllers.
	Connect func(ctx context.Context) (kubernetes.Interface, error)
	Archive *logarchive.Archive
	// Size is how many bytes are kept of the end of a log.
	Size int
	// Slots are those of all workers.
	Slots *Slots
	Clock clock.WithTicker
}

// Reconciler reconciles the logs of the jobs of one worker.
type Reconciler struct {
	Options
	// life ends with the worker's controllers: what Reconcile has begun goes on until then.
	life         context.Context //nolint:containedctx // It is the life of the goroutines that Reconcile starts.
	read, follow semaphore

	// kept has the attempts that need nothing more.
	kept *cache.LRUExpireCache
	mu   sync.Mutex
	// followed has the attempts that are followed now, under mu.
	followed map[logarchive.Attempt]bool
}

// NewReconciler makes the reconciler of one worker. Its goroutines end with life.
func NewReconciler(life context.Context, options Options) *Reconciler {
	return &Reconciler{
		Options: options, life: life, read: make(semaphore, readsOfWorker), follow: make(semaphore, followsOfWorker),
		kept: cache.NewLRUExpireCacheWithClock(maxKept, options.Clock), followed: map[logarchive.Attempt]bool{},
	}
}

// Reconcile keeps the logs of an attempt that has ended or is to end.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	seen, err := r.observe(hubcache.Patiently(ctx), request.NamespacedName)
	if err != nil {
		return requeue.AfterConflict(reconcile.Result{}, err)
	}
	decided := seen.decide(r.Cluster)
	if decided.step == wait {
		return reconcile.Result{}, nil
	}
	a := attemptOf(seen.dispatch)
	if _, kept := r.kept.Get(a); kept {
		return reconcile.Result{}, nil
	}
	log.FromContext(ctx).V(1).Info("Decided", "step", decided.step.String(), "attempt", a.Number)
	switch decided.step {
	case read:
		err = r.keep(ctx, seen, decided)
	case follow:
		r.begin(ctx, seen, decided)
	case miss:
		err = r.miss(ctx, a, decided)
	case wait:
	}
	return reconcile.Result{}, err
}

func attemptOf(d *v1alpha1.Dispatch) logarchive.Attempt {
	return logarchive.Attempt{Namespace: d.Namespace, Job: d.Name, UID: d.Spec.TrainJob.UID, Number: d.Spec.Attempt}
}

// observe reads from the caches. What it returns belongs to the caches.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (seen observation, err error) {
	if seen.dispatch, err = records.Dispatch(ctx, r.Hub, key, client.UnsafeDisableDeepCopy); err != nil {
		return seen, err
	}
	seen.copy, err = records.Job(ctx, r.Worker, key, client.UnsafeDisableDeepCopy)
	return seen, err
}

// keep reads the logs of an ended copy, unless they are kept already.
func (r *Reconciler) keep(ctx context.Context, seen observation, decided decision) error {
	a := attemptOf(seen.dispatch)
	if has, err := r.has(ctx, a); has || err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	x, err := r.index(ctx, a, decided.reason)
	if err != nil {
		return err
	}
	reading := &reading{Reconciler: r, index: x, copyUID: seen.copy.GetUID()}
	if err := reading.round(ctx); err != nil {
		return err
	}
	return r.close(ctx, x)
}

// miss says that the logs of an attempt are lost, unless some were kept.
func (r *Reconciler) miss(ctx context.Context, a logarchive.Attempt, decided decision) error {
	r.mu.Lock()
	followed := r.followed[a]
	r.mu.Unlock()
	if followed {
		return nil
	}
	if has, err := r.has(ctx, a); has || err != nil {
		return err
	}
	x, err := r.index(ctx, a, decided.reason)
	if err != nil {
		return err
	}
	x.Missing = decided.words
	return r.close(ctx, x)
}

// has asks the archive for an attempt, and remembers that it has it.
func (r *Reconciler) has(ctx context.Context, a logarchive.Attempt) (bool, error) {
	has, err := r.Archive.Has(ctx, a)
	if err != nil {
		archiveFailures.Inc()
	} else if has {
		r.kept.Add(a, true, keptFor)
	}
	return has, err
}

// index begins the index of an attempt.
func (r *Reconciler) index(ctx context.Context, a logarchive.Attempt, reason string) (*logarchive.Index, error) {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := r.Hub.Get(ctx, types.NamespacedName{Name: a.Namespace}, namespace); err != nil {
		return nil, fmt.Errorf("get Namespace %q: %w", a.Namespace, err)
	}
	return &logarchive.Index{Attempt: a, NamespaceUID: namespace.UID, Worker: r.Cluster, Reason: reason}, nil
}

// close writes the index.
func (r *Reconciler) close(ctx context.Context, x *logarchive.Index) error {
	x.KeptAt = r.Clock.Now().UTC()
	if err := r.Archive.WriteIndex(ctx, x); err != nil {
		archiveFailures.Inc()
		return err
	}
	r.kept.Add(x.Attempt, true, keptFor)
	log.FromContext(ctx).Info("Kept logs", "attempt", x.Number, "pods", len(x.Pods), "missing", x.Missing)
	return nil
}

// client connects to the worker, and checks that it is the right cluster.
func (r *Reconciler) client(ctx context.Context) (kubernetes.Interface, error) {
	worker, err := r.Connect(ctx)
	if err != nil {
		return nil, err
	}
	system, err := worker.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask worker %q who it is: %w", r.Cluster, err)
	case system.UID != r.ClusterID:
		return nil, fmt.Errorf("another cluster answers at the address of worker %q", r.Cluster)
	}
	return worker, nil
}

// errNoJobSet says that nothing is left of a copy from which logs could be read.
var errNoJobSet = errors.New("the copy's JobSet was gone before the logs of its pods were read")

// jobSet returns the UID of the JobSet of a copy.
func (r *Reconciler) jobSet(ctx context.Context, a logarchive.Attempt, copyUID types.UID) (types.UID, error) {
	set := newJobSet()
	err := r.Worker.Get(ctx, types.NamespacedName{Namespace: a.Namespace, Name: a.Job}, set)
	switch owner := metav1.GetControllerOfNoCopy(set); {
	case apierrors.IsNotFound(err), err == nil && (owner == nil || owner.UID != copyUID):
		return "", errNoJobSet
	case err != nil:
		return "", fmt.Errorf("get JobSet %s/%s of worker %q: %w", a.Namespace, a.Job, r.Cluster, err)
	}
	return set.GetUID(), nil
}
