// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
)

// State is the state of the connection to one worker.
type State int

// The states. All names but Closed are reasons of a WorkerCluster's Ready condition.
const (
	// Connecting: the first connection is being made, the worker waits for its pin, or it lives but its caches cannot be
	// filled or kept up to date. The message says which.
	Connecting State = iota
	// Connected: the worker answers with the pinned cluster ID, serves TrainJobs, and its caches are filled.
	Connected
	// Unreachable: the worker does not answer.
	Unreachable
	// CredentialsInvalid: the worker answers 401, or 403 to a needed request. This says nothing about its jobs.
	CredentialsInvalid
	// IdentityChanged: the credentials lead to a cluster that is not the pinned one.
	IdentityChanged
	// TrainJobAPIMissing: the worker does not serve TrainJobs.
	TrainJobAPIMissing
	// Closed: the worker was removed from the fleet. It is the last state.
	Closed

	stateCount
)

var stateNames = [stateCount]string{
	"Connecting", "Connected", "Unreachable", "CredentialsInvalid", "IdentityChanged", "TrainJobAPIMissing", "Closed",
}

// String returns the name of the state.
func (s State) String() string {
	if s < 0 || s >= stateCount {
		return fmt.Sprintf("State(%d)", int(s))
	}
	return stateNames[s]
}

// Trainer is a worker's TrainJob API.
type Trainer struct {
	// Version is the version that the worker serves and the hub uses. Empty: not known yet.
	Version string
	// Fields are the fields of a TrainJob's spec, sorted. Empty: the worker does not publish them.
	Fields []string
	// Release is the release of the Kubeflow Trainer whose TrainJobs have these fields, as fields.Release.
	Release string
	// Missing and MissingOfRuntimes are the fields of TrainJobs and of runtimes that the hub knows and the worker does not,
	// as Schema.Missing of package fields. Empty also if one of them is not known.
	Missing, MissingOfRuntimes []string
	// Untranslatable is what translate.Lacking says of both.
	Untranslatable []string
}

func (t *Trainer) same(other *Trainer) bool {
	return t.Version == other.Version && t.Release == other.Release && slices.Equal(t.Fields, other.Fields) &&
		slices.Equal(t.Missing, other.Missing) && slices.Equal(t.MissingOfRuntimes, other.MissingOfRuntimes) &&
		slices.Equal(t.Untranslatable, other.Untranslatable)
}

// Status is what is known of a worker. It is a value: nobody changes its parts.
type Status struct {
	State State
	// Message says what an admin should know or do. It does not change while the cause is the same.
	Message string
	// Capacity says whether the inventory is reliable, CapacityMessage what to do. Both count only while Connected.
	Capacity        capacity.State
	CapacityMessage string
	// JobSetMissing says what to do about a worker that does not serve JobSets, so that no copy can run there. Empty: it
	// serves them, as far as is known. It counts only while Connected: the hub must be able to stop jobs there.
	JobSetMissing string
	// Forbidden are those of Options.Rights that the worker refuses. They count only while Connected.
	Forbidden []Right
	// Since is when the state began. For Unreachable, it is the time of the first failure.
	Since time.Time
	// SilentSince is the time since which nothing has answered at the address, while State is Unreachable: no connection
	// could be made, and nothing refused one. It is zero if something has answered since contact was lost (even a refusal,
	// a reset, or silence on a new connection), if DNS or a proxy hides the worker, or if nobody has dialled yet.
	SilentSince time.Time
	// Untried is true while State is Unreachable and no dial since contact was lost has shown whether anything answers. It
	// becomes false within a probe.
	Untried bool
	// LeaseRefusal is the HTTP code with which the worker refuses to show its ExecutionLease: 404 without the CRD, 403
	// without the right. 0: the worker has not refused.
	LeaseRefusal int
	// LastSeen is when the pinned worker last answered. Only State, Message, SilentSince and Untried are newer.
	LastSeen time.Time
	// ClusterID is the UID of the kube-system namespace in the last answer. In IdentityChanged it is not the pinned one.
	ClusterID types.UID
	// KubernetesVersion is the version of the API server, such as v1.36.3.
	KubernetesVersion string
	Trainer           Trainer
	// Fingerprint is the fingerprint of the credentials in use.
	Fingerprint string
}

// same says whether there is nothing to report to subscribers.
func (s Status) same(other Status) bool {
	return s.State == other.State && s.SilentSince.Equal(other.SilentSince) && s.Untried == other.Untried && s.LeaseRefusal == other.LeaseRefusal &&
		s.JobSetMissing == other.JobSetMissing && slices.Equal(s.Forbidden, other.Forbidden) && s.Capacity == other.Capacity && s.CapacityMessage == other.CapacityMessage &&
		s.Message == other.Message && s.Since.Equal(other.Since) && s.ClusterID == other.ClusterID &&
		s.KubernetesVersion == other.KubernetesVersion && s.Trainer.same(&other.Trainer) && s.Fingerprint == other.Fingerprint
}

// ErrNotConnected is the error of a request to a worker that is not Connected. Do not retry: subscribe.
var ErrNotConnected = errors.New("worker is not connected")

// ErrNotListed is the error of a read of an optional kind (cachedKind) that is not listed yet, or may not be listed.
var ErrNotListed = errors.New("the worker has not listed this kind")

// ErrNotLeading is the error of a write by a process that does not certainly lead. Nothing was sent.
var ErrNotLeading error = notLeading{}

type notLeading struct{}

func (notLeading) Error() string { return "this process may not lead any more, so it writes nothing" }

// RetryAfter is for package requeue: either the lease is renewed in a moment, or this process ends.
func (notLeading) RetryAfter() time.Duration { return time.Second }

// IsNotConnected says whether err is or wraps ErrNotConnected.
func IsNotConnected(err error) bool { return errors.Is(err, ErrNotConnected) }

// subscription keeps which Clusters have changed until its goroutine calls notify for them.
type subscription struct {
	notify func(v1alpha1.ClusterName, Status)
	wake   chan struct{}

	mu sync.Mutex
	// locked is guarded by mu.
	locked struct {
		changed map[v1alpha1.ClusterName]*Cluster
	}
}

func newSubscription(notify func(v1alpha1.ClusterName, Status)) *subscription {
	s := &subscription{notify: notify, wake: make(chan struct{}, 1)}
	s.locked.changed = map[v1alpha1.ClusterName]*Cluster{}
	return s
}

// add records a change. It never blocks.
func (s *subscription) add(c *Cluster) {
	s.mu.Lock()
	s.locked.changed[c.name] = c
	s.mu.Unlock()
	poke(s.wake)
}

func (s *subscription) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		s.mu.Lock()
		changed := s.locked.changed
		s.locked.changed = map[v1alpha1.ClusterName]*Cluster{}
		s.mu.Unlock()
		for name, c := range changed {
			if ctx.Err() != nil {
				return
			}
			s.notify(name, c.Status())
		}
	}
}

// poke wakes the reader of a channel of capacity one. If nobody reads now, the next read returns at once.
func poke(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
