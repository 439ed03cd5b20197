// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

// handOver is how long a manager that was stopped and goes on may take to see that it leads no more, and to end.
const handOver = time.Minute

// Managers keep a manager running, as its Deployment would. They restart a manager that has ended, for example because
// it could not renew its lease. Their methods are safe for concurrent use.
type Managers struct {
	yard *yard.Yard
	done chan struct{}
	kept sync.WaitGroup

	mu      sync.Mutex
	current *clusters.Process // under mu; nil: none is to run
	more    []string          // arguments of the next one; under mu
}

func keepManagers(y *yard.Yard) *Managers {
	m := &Managers{yard: y, current: y.Manager, done: make(chan struct{})}
	m.kept.Go(m.keep)
	return m
}

func (m *Managers) keep() {
	for {
		select {
		case <-m.done:
			return
		case <-time.After(restartDelay):
		}
		m.mu.Lock()
		if m.current != nil {
			select {
			case <-m.current.Done():
				_ = m.start() // An error is one of the machine; it is tried again.
			default:
			}
		}
		m.mu.Unlock()
	}
}

// restartDelay is how long a manager that has ended stays so at most.
const restartDelay = 500 * time.Millisecond

// start starts a manager, which is the current one. The caller holds mu.
func (m *Managers) start() error {
	if err := m.yard.StartManager(context.Background(), m.more...); err != nil {
		return err
	}
	m.current = m.yard.Manager
	return nil
}

// Ended is closed when the present manager has ended.
func (m *Managers) Ended() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current.Done()
}

// Kill ends the manager with SIGKILL, and starts another manager.
func (m *Managers) Kill() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.current.Kill(); err != nil {
		return err
	}
	return m.start()
}

// Away ends the manager with SIGKILL. There is no manager until Back.
func (m *Managers) Away() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	current := m.current
	m.current = nil
	return current.Kill()
}

// Back starts a manager. The arguments override the arguments of the world.
func (m *Managers) Back(more ...string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.more = more
	return m.start()
}

// Pause stops the manager without ending it, and starts another manager. That manager leads when the first has not
// renewed its lease for long enough. resume lets the first manager continue, and waits until it has seen that it no
// longer leads and has ended.
func (m *Managers) Pause() (resume func(context.Context) error, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	first := m.current
	if err := first.Signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	resume = func(ctx context.Context) error {
		if err := first.Signal(syscall.SIGCONT); err != nil {
			return err
		}
		select {
		case <-first.Done():
			return nil
		case <-time.After(handOver):
			return first.Kill() // It waits for the lease, as any other would.
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return resume, m.start()
}

// stop lets the managers be.
func (m *Managers) stop() {
	close(m.done)
	m.kept.Wait()
}
