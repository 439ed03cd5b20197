// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package perworker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/remote"
)

// sweeper sweeps one worker in a goroutine of its own. After each new connection the worker must be swept before
// anything else may happen there. The sweeper retries until the sweep succeeds.
type sweeper[C Connection] struct {
	connection C
	// sweep does the sweep. finish is called after each successful sweep.
	sweep, finish func(context.Context) error
	// refused is true while the worker refuses to be swept.
	refused func() bool
	clock   clock.Clock
	log     logr.Logger

	// due has a token while a sweep is due. cancel ends the goroutine, which closes done.
	due    chan struct{}
	cancel context.CancelFunc
	done   chan struct{}

	mu sync.Mutex
	// swept is Status.Since of the connection for which the worker has been swept. mu guards it.
	swept time.Time
}

// newSweeper makes the sweeper of a worker for all kinds that have a Sweep.
func newSweeper[C Connection](s *Set[C], name v1alpha1.ClusterName, connection C) *sweeper[C] {
	return &sweeper[C]{
		connection: connection, clock: s.clock, log: s.log.WithValues("workerCluster", name),
		due: make(chan struct{}, 1), done: make(chan struct{}),
		sweep: func(ctx context.Context) error {
			for _, kind := range s.kinds {
				if kind.Sweep == nil {
					continue
				}
				if err := kind.Sweep(ctx, name, connection); err != nil {
					return fmt.Errorf("sweep worker %q for controller %q: %w", name, kind.Name, err)
				}
			}
			return nil
		},
		finish: func(ctx context.Context) error { return s.enqueueLive(ctx, name, connection) },
		refused: func() bool {
			return slices.ContainsFunc(s.kinds, func(kind Kind[C]) bool { return kind.Refused != nil && kind.Refused(name) })
		},
	}
}

func (w *sweeper[C]) start(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	w.cancel = cancel
	go func() {
		defer close(w.done)
		defer cancel()
		for {
			select {
			case <-ctx.Done():
				return
			case <-w.due:
				w.untilDone(ctx)
			}
		}
	}()
}

func (w *sweeper[C]) stop() {
	w.cancel()
	<-w.done
}

// again requests another sweep, after which the worker's keys are enqueued. It never blocks.
func (w *sweeper[C]) again() {
	select {
	case w.due <- struct{}{}:
	default: // A sweep is due already.
	}
}

// over is true if the worker is connected and has been swept for this connection.
func (w *sweeper[C]) over() bool {
	status := w.connection.Status()
	w.mu.Lock()
	defer w.mu.Unlock()
	return status.State == remote.Connected && !w.swept.IsZero() && w.swept.Equal(status.Since)
}

// untilDone sweeps until it succeeds, or until the worker is not connected. After a reconnection Join calls again.
func (w *sweeper[C]) untilDone(ctx context.Context) {
	logged, brought := false, false
	for delay := minBackoff; ; delay = min(2*delay, maxBackoff) {
		status := w.connection.Status()
		if status.State != remote.Connected {
			return
		}
		err := w.once(ctx, status.Since)
		if err == nil || ctx.Err() != nil {
			return
		}
		if !logged && !remote.IsNotConnected(err) {
			w.log.Error(err, "Outdated copies on the worker are not deleted yet, and no new ones are created there until "+
				"they are; trying again")
			logged = true
		}
		// The controllers end the attempts that were placed there, so that the jobs run elsewhere.
		if w.refused() && !brought {
			brought = w.finish(ctx) == nil
		}
		select {
		case <-ctx.Done():
			return
		case <-w.clock.After(delay):
		}
	}
}

// once sweeps the worker for the connection that began at since. Then finish enqueues keys that were held back.
func (w *sweeper[C]) once(ctx context.Context, since time.Time) error {
	if err := w.sweep(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	w.swept = since
	w.mu.Unlock()
	return w.finish(ctx)
}

// holdCheck is how often a held Dispatch is checked again.
const holdCheck = time.Second

// held wraps a reconciler. Until the worker has been swept, it drops keys for which the reconciler could create a copy.
// It passes a key whose copy belongs to the current attempt, so that the hub learns the copy's status even if the sweep
// fails, and a key whose Dispatch is being deleted. While the worker refuses the sweep, all keys pass.
type held[C Connection] struct {
	reconcile.Reconciler
	worker  v1alpha1.ClusterName
	hub     cache.Cache
	sweeper *sweeper[C]
	hold    func(context.Context, *v1alpha1.Dispatch) bool
	refused func(v1alpha1.ClusterName) bool
}

// Reconcile implements reconcile.Reconciler. Dropped keys are enqueued again after the sweep.
func (h held[C]) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	dispatch := &v1alpha1.Dispatch{}
	if err := h.hub.Get(ctx, request.NamespacedName, dispatch, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("get Dispatch %s: %w", request, err)
	}
	if dispatch.DeletionTimestamp != nil {
		return h.Reconciler.Reconcile(ctx, request)
	}
	swept := h.sweeper.over()
	if swept && !h.isHeld(ctx, dispatch) {
		return h.Reconciler.Reconcile(ctx, request)
	}
	current, err := h.hasCurrentCopy(ctx, dispatch)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case current, !swept && h.refused != nil && h.refused(h.worker) && !h.isHeld(ctx, dispatch):
		return h.Reconciler.Reconcile(ctx, request)
	case swept:
		return reconcile.Result{RequeueAfter: holdCheck}, nil
	}
	return reconcile.Result{}, nil
}

// isHeld is true for a Dispatch whose attempt has no copy here yet, while Hold forbids the first copy.
func (h held[C]) isHeld(ctx context.Context, d *v1alpha1.Dispatch) bool {
	return h.hold != nil && d.Spec.Cluster == h.worker && record.LacksCopy(d) && h.hold(ctx, d)
}

// hasCurrentCopy is true if the worker's cache has a copy of the Dispatch's current attempt.
func (h held[C]) hasCurrentCopy(ctx context.Context, d *v1alpha1.Dispatch) (bool, error) {
	if d.UID == "" {
		return false, nil
	}
	key, copy := client.ObjectKeyFromObject(d), trainjobs.New()
	if err := h.sweeper.connection.Cache().Get(ctx, key, copy, client.UnsafeDisableDeepCopy); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("get TrainJob %s on worker %q: %w", key, h.worker, err)
		}
		return false, nil
	}
	relation := record.RelationOf(d, copy, record.Known{})
	return relation == record.Current || relation == record.Second, nil
}
