// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"net/http"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/executionlease/protocol"
)

// state is what the reconciler has to do about the lease on a worker.
type state int

const (
	// away: the reconciler can do nothing.
	away state = iota
	// unlisted: the worker has not shown whether there is a lease.
	unlisted
	// absent: there is no lease.
	absent
	// unanswered: the lease has a challenge that is not answered.
	unanswered
	// settled: there is nothing to do.
	settled
)

// String names the state, for tests.
func (s state) String() string {
	return [...]string{"away", "unlisted", "absent", "unanswered", "settled"}[s]
}

type observation struct {
	// leading: this process leads. connected: the worker can be written to. registered: its WorkerCluster exists.
	leading, connected, registered bool
	// listed says whether the worker has shown its leases. lease is this hub's lease, nil if there is none.
	listed bool
	lease  *v1alpha1.ExecutionLease
	// due says whether a challenge has to be answered.
	due bool
}

func (f observation) decide() state {
	switch {
	case !f.leading || !f.connected || !f.registered:
		return away
	case !f.listed:
		return unlisted
	case f.lease == nil:
		return absent
	case f.due:
		return unanswered
	}
	return settled
}

// refusalOf is the state after a worker has refused to list leases.
func refusalOf(code int) protocol.AgentState {
	switch code {
	case 0:
		return protocol.AgentUnknown
	case http.StatusNotFound:
		return protocol.AgentUnsupported
	}
	return protocol.AgentForbidden
}

func readingOf(lease *v1alpha1.ExecutionLease) protocol.Reading {
	if lease == nil {
		return protocol.Reading{}
	}
	reading := protocol.Reading{
		Challenge:  protocol.ParseChallenge(lease.Status.Challenge),
		Answer:     protocol.ParseChallenge(lease.Spec.Answer),
		FenceAfter: lease.Spec.FenceAfter.Duration,
		Valid:      lease.Status.State == v1alpha1.LeaseValid,
	}
	if lease.Status.Interval != nil {
		reading.Interval = lease.Status.Interval.Duration
	}
	return reading
}
