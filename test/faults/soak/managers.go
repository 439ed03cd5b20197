// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"sync"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/faults/world"
)

// managers keeps a manager running, as its Deployment would.
type managers struct {
	world *world.World

	mu      sync.Mutex
	current *clusters.Process // under mu
	stopped chan struct{}
	kept    sync.WaitGroup
}

func newManagers(w *world.World) *managers {
	m := &managers{world: w, current: w.Manager, stopped: make(chan struct{})}
	m.kept.Go(m.keep)
	return m
}

// keep starts a manager when the current one has ended.
func (m *managers) keep() {
	for {
		m.mu.Lock()
		current := m.current
		m.mu.Unlock()
		select {
		case <-m.stopped:
			return
		case <-current.Done():
		case <-time.After(time.Second):
			continue // Another one may be the current one.
		}
		m.mu.Lock()
		if m.current == current {
			_ = m.start() // An error means that it ends at once, and is started again.
		}
		m.mu.Unlock()
	}
}

// start starts a manager, which is the current one. The caller holds mu.
func (m *managers) start() error {
	if err := m.world.StartManager(context.Background()); err != nil {
		return err
	}
	m.current = m.world.Manager
	return nil
}

func (m *managers) stop() {
	close(m.stopped)
	m.kept.Wait()
}

func (m *managers) kill() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current.Kill()
}

// pause stops the manager without ending it, and starts another one, which leads when the first has not renewed its lease for long enough.
// At the end the first one goes on, sees that it leads no more, and ends.
func (m *managers) pause(context.Context) (end func(context.Context) error, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	first := m.current
	if err := first.Signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	end = func(ctx context.Context) error {
		if err := first.Signal(syscall.SIGCONT); err != nil {
			return err
		}
		select {
		case <-first.Done():
			return nil
		case <-time.After(time.Minute):
			return first.Kill() // It had not led.
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return end, m.start()
}

// lead says whether a manager has renewed the lease a moment ago. This machine has one clock.
func (m *managers) lead(ctx context.Context, hub client.Client) bool {
	lease := &coordinationv1.Lease{}
	err := hub.Get(ctx, client.ObjectKey{Namespace: "trainyard-system", Name: "manager.trainyard.dev"}, lease)
	return err == nil && lease.Spec.RenewTime != nil && time.Since(lease.Spec.RenewTime.Time) < 2*time.Second
}
