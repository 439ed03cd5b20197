// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/controllers/hub/garbagecollection"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/explorer/memory"
)

// epoch is when the world begins, by a clock that is right.
var epoch = time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC)

// Clock is the clock of a process. It has an offset, and runs fast or slow. It runs on while its process is paused.
type Clock struct {
	clock.WithDelayedExecution // Nil: methods that are not implemented are not called.

	world  *World
	offset time.Duration
	// rate is how many thousandths of a second pass on it in a second.
	rate int64
	// alarms that have not gone off.
	alarms []*alarm
}

type alarm struct {
	clock.Timer // Nil: only Stop is used.
	at          time.Duration
	ring        func()
	stopped     bool
}

// Stop implements clock.Timer.
func (a *alarm) Stop() bool {
	was := a.stopped
	a.stopped = true
	return !was
}

// Now implements clock.PassiveClock.
func (c *Clock) Now() time.Time { return c.at(c.world.now) }

func (c *Clock) at(now time.Duration) time.Time {
	return epoch.Add(c.offset + now/1000*time.Duration(c.rate))
}

// Since implements clock.PassiveClock.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// AfterFunc implements clock.WithDelayedExecution.
func (c *Clock) AfterFunc(d time.Duration, f func()) clock.Timer {
	a := &alarm{at: c.due(d), ring: f}
	c.alarms = append(c.alarms, a)
	return a
}

// due is when a time has passed on this clock. It never comes early.
func (c *Clock) due(d time.Duration) time.Duration {
	return c.world.now + time.Duration(int64(d)/c.rate*1000) + time.Millisecond
}

// next is when the first alarm goes off, never if there is none.
func (c *Clock) next() time.Duration {
	first := never
	for _, a := range c.alarms {
		if !a.stopped {
			first = min(first, a.at)
		}
	}
	return first
}

// ring lets the alarms go off that are due.
func (c *Clock) ring() {
	var later, due []*alarm
	for _, a := range c.alarms {
		switch {
		case a.stopped:
		case a.at <= c.world.now:
			due = append(due, a)
		default:
			later = append(later, a)
		}
	}
	c.alarms = later
	for _, a := range due {
		a.ring()
	}
}

// How a manager finds out that a worker is away, as package remote does it.
const (
	probeInterval    = 10 * time.Second
	failureThreshold = 3
)

// connection is the connection of a manager to a worker.
type connection struct {
	manager *Manager
	worker  *Worker
	client  *memory.Client
	status  remote.Status
	// failures since the last answer, the first of them, and whether something has answered at the address since.
	failures     int
	firstFailure time.Time
	answered     bool
	// swept is the time of connection in which the worker was swept.
	swept  time.Time
	joined bool
}

func (c *connection) connected() bool { return c.status.State == remote.Connected }

// Client implements copies.Connection and hublease.Connection.
func (c *connection) Client() (client.Client, error) {
	if !c.connected() {
		return nil, remote.ErrNotConnected
	}
	return c.client, nil
}

// APIReader implements copies.Connection.
func (c *connection) APIReader() (client.Reader, error) {
	if !c.connected() {
		return nil, remote.ErrNotConnected
	}
	if c.manager.world.Broken.NoPodsSeen {
		return blind{c.client.Live()}, nil
	}
	return c.client.Live(), nil
}

// blind sees neither JobSets nor Jobs nor pods.
type blind struct{ client.Reader }

// List implements client.Reader.
func (b blind) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	switch list.(type) {
	case *batchv1.JobList, *corev1.PodList:
		return nil
	}
	return b.Reader.List(ctx, list, options...)
}

// Get implements client.Reader.
func (b blind) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if object.GetObjectKind().GroupVersionKind().Kind == "JobSet" {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "jobsets"}, key.Name)
	}
	return b.Reader.Get(ctx, key, object, options...)
}

// Status implements hublease.Connection.
func (c *connection) Status() remote.Status { return c.status }

// probe asks the worker who it is.
func (c *connection) probe(ctx context.Context, _ types.NamespacedName) (time.Duration, error) {
	m, now := c.manager, c.manager.clock.Now()
	before := c.status
	switch {
	case m.reaches(c.worker.server):
		c.failures, c.answered = 0, false
		c.status.LastSeen, c.status.ClusterID = now, c.worker.id
		if c.status.State != remote.Connected {
			c.status.State, c.status.Since, c.status.SilentSince = remote.Connected, now, time.Time{}
		}
	default:
		if c.failures == 0 {
			c.firstFailure = now
		}
		c.failures++
		c.answered = c.answered || c.worker.down
		c.fail(now)
	}
	if c.status.State != before.State || !c.status.SilentSince.Equal(before.SilentSince) {
		c.changed(ctx)
	}
	return probeInterval, nil
}

func (c *connection) fail(now time.Time) {
	doubted := c.failures < failureThreshold || now.Sub(c.firstFailure) < (failureThreshold-1)*probeInterval
	if doubted && c.status.State == remote.Connected {
		return
	}
	c.status.State, c.status.Since, c.status.SilentSince = remote.Unreachable, c.firstFailure, c.firstFailure
	if c.answered && !c.manager.world.Broken.RefusedIsSilent {
		c.status.SilentSince = time.Time{}
	}
}

// changed tells everybody that the status has changed.
func (c *connection) changed(ctx context.Context) {
	m := c.manager
	m.workers.Add(c.key())
	m.failover.Add(c.key())
	m.wakeAll()
	if c.connected() {
		c.join(ctx)
	}
}

func (c *connection) key() types.NamespacedName {
	return types.NamespacedName{Name: string(c.worker.name)}
}

// join starts the controllers of the worker, unless they run, and requests a sweep of the worker.
func (c *connection) join(ctx context.Context) {
	m := c.manager
	if !c.joined {
		c.joined = true
		m.addWorker(ctx, c)
	}
	m.loop("sweep " + string(c.worker.name)).Add(c.key())
	m.loop("lease " + string(c.worker.name)).Add(types.NamespacedName{Name: hubID})
}

// sweep does what is done on a worker before anything else.
func (c *connection) sweep(ctx context.Context, _ types.NamespacedName) (time.Duration, error) {
	if !c.connected() {
		return 0, nil
	}
	since := c.status.Since
	if !c.manager.world.Broken.NoSweep {
		if _, err := garbagecollection.Sweep(ctx, c.manager.collection(c)); err != nil {
			return time.Second, nil //nolint:nilerr // It is tried again.
		}
	}
	c.swept = since
	c.manager.enqueueLive(c)
	return 0, nil
}

func (c *connection) over() bool {
	return c.connected() && !c.swept.IsZero() && c.swept.Equal(c.status.Since)
}
