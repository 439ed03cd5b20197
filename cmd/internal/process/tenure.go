// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// Tenure is the lease of a leader election, and knows until when it is certainly held. The election itself notices only by and by that it
// is lost: a process that was stopped and goes on works as a leader until its renewal meets that of the next one. And
// if the next one has ended by then, the election makes it the leader again, which Tenure refuses.
type Tenure struct {
	resourcelock.Interface
	clock clock.PassiveClock
	// term is for how long one renewal counts.
	term time.Duration
	// until is when the last one ends.
	until atomic.Pointer[time.Time]
	// taken is true once this process has held the lease, and transitions says how often the lease had changed hands by
	// then. Only the election's goroutine uses them.
	taken       bool
	transitions int
}

// errSucceeded ends a process whose lease was another's meanwhile. The other may be gone by now. But what it wrote
// while it led is not in the caches of this process yet, and nothing here would begin anew.
var errSucceeded = errors.New("another process has held the lease since this one took it: this one must begin anew")

// Elect makes the lease with which Apply has the manager stand for election, so that Leads is exact. Without it, and without LeaderElect,
// Leads is true.
func (o *Options) Elect(config *rest.Config) error {
	if !o.LeaderElect {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find a name for this process: %w", err)
	}
	config = rest.AddUserAgent(rest.CopyConfig(config), "leader-election") // Of its own: a timeout would end everybody's watches.
	config.Timeout = max(o.RenewDeadline/2, time.Second)                   // A request that hangs must not cost the lease.
	leases, err := coordination.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client for lease %q: %w", o.LeaseName, err)
	}
	o.tenure = newTenure(&resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: o.LeaseNamespace, Name: o.LeaseName},
		Client:     leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
	}, o.RenewDeadline, clock.RealClock{})
	return nil
}

// Leads says whether this process certainly leads now.
func (o *Options) Leads() bool { return o.tenure == nil || o.tenure.Certain() }

func newTenure(lock resourcelock.Interface, term time.Duration, clock clock.PassiveClock) *Tenure {
	return &Tenure{Interface: lock, clock: clock, term: term}
}

// Certain says whether this process leads, and nobody else can: it has renewed within the renew deadline, by its monotonic clock and from
// when it sent the renewal. Others wait for longer than that. It may be called from any goroutine.
func (t *Tenure) Certain() bool {
	until := t.until.Load()
	return until != nil && t.clock.Now().Before(*until)
}

// Create implements resourcelock.Interface.
func (t *Tenure) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return t.write(record, func() error { return t.Interface.Create(ctx, record) })
}

// Update implements resourcelock.Interface.
func (t *Tenure) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return t.write(record, func() error { return t.Interface.Update(ctx, record) })
}

func (t *Tenure) write(record resourcelock.LeaderElectionRecord, send func() error) error {
	mine := record.HolderIdentity == t.Identity()
	if !mine { // A release ends it when it is sent.
		t.until.Store(nil)
	}
	if mine && t.taken && record.LeaderTransitions != t.transitions {
		t.until.Store(nil)
		return errSucceeded
	}
	until := t.clock.Now().Add(t.term)
	err := send()
	switch {
	case err == nil && mine:
		t.taken, t.transitions = true, record.LeaderTransitions
		t.until.Store(&until)
	case apierrors.IsConflict(err): // Somebody else has written.
		t.until.Store(nil)
	}
	return err
}
