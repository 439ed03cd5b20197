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

// Tenure is the lease of a leader election, and knows until when this process certainly holds it. The election alone
// notices a lost lease late: a paused process works as leader until its renewal conflicts with the next leader's. If
// the next leader has ended by then, the election makes the paused process leader again. Tenure refuses that.
type Tenure struct {
	resourcelock.Interface
	clock clock.PassiveClock
	// term is how long one renewal counts.
	term time.Duration
	// until is the end of the term of the last renewal.
	until atomic.Pointer[time.Time]
	// taken is true once this process has held the lease. transitions is how often the lease had changed its holder by
	// then. Only the election's goroutine uses them.
	taken       bool
	transitions int
}

// errSucceeded ends a process if another process has held the lease in the meantime, even if that process has ended.
// The caches of this process do not have its writes yet, and nothing would restart the controllers.
var errSucceeded = errors.New("another process has held the lease since this process took it: this process must restart")

// Elect makes the lease for Apply's election, so that Leads is exact. Without Elect or LeaderElect, Leads is true.
func (o *Options) Elect(config *rest.Config) error {
	if !o.LeaderElect {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find a name for this process: %w", err)
	}
	// This client is separate, because its timeout would end the watches of others.
	config = rest.AddUserAgent(rest.CopyConfig(config), "leader-election")
	config.Timeout = max(o.RenewDeadline/2, time.Second) // A request that hangs must not lose the lease.
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

// Certain says whether this process leads and no other process can lead: less than the renew deadline has passed on its
// monotonic clock since it sent the last successful renewal. Others wait longer. Any goroutine may call Certain.
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
	if !mine { // A release ends the term before it is sent.
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
	case apierrors.IsConflict(err): // Another process has written the lease.
		t.until.Store(nil)
	}
	return err
}
