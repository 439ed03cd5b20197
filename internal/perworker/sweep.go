// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package perworker

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/remote"
)

// sweeper sweeps one worker: it does what has to be done there in each new time of connection before anything else may be, in a
// goroutine of its own, and tries again until it is done.
type sweeper[C Connection] struct {
	connection C
	// sweep does it, and finish is called after each time.
	sweep, finish func(context.Context) error
	// refused is true while the worker refuses to be swept.
	refused func() bool
	clock   clock.Clock
	log     logr.Logger

	// due has a token while a sweep is to be made. cancel ends the goroutine, which closes done.
	due    chan struct{}
	cancel context.CancelFunc
	done   chan struct{}

	mu sync.Mutex
	// swept is the beginning of the time of connection in which the worker has been swept. Under mu.
	swept time.Time
}

// newSweeper makes the sweeper of a worker for all kinds that sweep.
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

// again has the worker swept, and its keys brought, once more. It never blocks.
func (w *sweeper[C]) again() {
	select {
	case w.due <- struct{}{}:
	default: // One is due already.
	}
}

// over is true if the worker is connected, and has been swept since it is.
func (w *sweeper[C]) over() bool {
	status := w.connection.Status()
	w.mu.Lock()
	defer w.mu.Unlock()
	return status.State == remote.Connected && !w.swept.IsZero() && w.swept.Equal(status.Since)
}

// untilDone sweeps until it has worked, or until the worker is not connected any more: then Join comes again.
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
			w.log.Error(err, "Worker gets nothing new until what is outdated there is deleted; trying again")
			logged = true
		}
		if w.refused() && !brought { // What was placed there goes elsewhere.
			brought = w.finish(ctx) == nil
		}
		select {
		case <-ctx.Done():
			return
		case <-w.clock.After(delay):
		}
	}
}

// once sweeps the worker in the time of connection that began then. What was held back before comes with the keys that finish brings.
func (w *sweeper[C]) once(ctx context.Context, since time.Time) error {
	if err := w.sweep(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	w.swept = since
	w.mu.Unlock()
	return w.finish(ctx)
}

// holdCheck is how often it is looked whether a copy may be created.
const holdCheck = time.Second

// held is a controller that gets no key that could make it create something until the worker has been swept. A key
// whose copy is that of the current attempt goes through all the same: what the copy says is brought to the hub even if
// the sweep does not get on. So does one whose Dispatch is being deleted, which has nothing to wait for. While the
// worker refuses to be swept all keys go through.
type held[C Connection] struct {
	reconcile.Reconciler
	worker  v1alpha1.ClusterName
	hub     cache.Cache
	sweeper *sweeper[C]
	hold    func(context.Context, *v1alpha1.Dispatch) bool
	refused func(v1alpha1.ClusterName) bool
}

// Reconcile implements reconcile.Reconciler. What is dropped here comes again after the sweep.
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

// isHeld is true for a Dispatch whose attempt waits here for its first copy, as long as there must be none.
func (h held[C]) isHeld(ctx context.Context, d *v1alpha1.Dispatch) bool {
	return h.hold != nil && d.Spec.Cluster == h.worker && !d.IsFinished() && !d.WasCopied() && !d.AttemptEnded() && h.hold(ctx, d)
}

// hasCurrentCopy is true if the worker has, by its cache, the copy of the Dispatch's current attempt.
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
	return copy.GetLabels()[v1alpha1.LabelOriginUID] == string(d.Spec.TrainJob.UID) &&
		copy.GetAnnotations()[v1alpha1.AnnotationAttempt] == strconv.Itoa(int(d.Spec.Attempt)), nil
}
