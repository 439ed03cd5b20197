// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package perworker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/remote"
)

// sweeper sweeps one worker in a goroutine of its own. After each new connection the worker must be swept before
// anything else may happen there. The sweeper retries until the sweep succeeds.
type sweeper[C Connection] struct {
	connection C
	// sweep does the sweep. finish is called after each successful sweep.
	sweep  func(context.Context) (refused bool, err error)
	finish func(context.Context) error
	clock  clock.Clock
	log    logr.Logger

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
		sweep: func(ctx context.Context) (refused bool, err error) {
			for _, kind := range s.kinds {
				if kind.Sweep == nil {
					continue
				}
				if refused, err := kind.Sweep(ctx, name, connection); err != nil {
					return refused, fmt.Errorf("sweep worker %q for controller %q: %w", name, kind.Name, err)
				}
			}
			return false, nil
		},
		finish: func(ctx context.Context) error { return s.enqueueLive(ctx, name, connection) },
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
		refused, err := w.once(ctx, status.Since)
		if err == nil || ctx.Err() != nil {
			return
		}
		if !logged && !remote.IsNotConnected(err) {
			w.log.Error(err, "Outdated copies on the worker are not deleted yet, and no new ones are created there until "+
				"they are; trying again")
			logged = true
		}
		// The controllers end the attempts that were placed there, so that the jobs run elsewhere.
		if refused && !brought {
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
func (w *sweeper[C]) once(ctx context.Context, since time.Time) (refused bool, err error) {
	if refused, err := w.sweep(ctx); err != nil {
		return refused, err
	}
	w.mu.Lock()
	w.swept = since
	w.mu.Unlock()
	return false, w.finish(ctx)
}
