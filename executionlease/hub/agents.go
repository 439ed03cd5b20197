// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/executionlease/protocol"
	"github.com/trainyard/trainyard/remote"
)

// Agents is what the hub knows of the agents of all workers. Several goroutines may call its methods. They do no I/O.
type Agents struct {
	margin time.Duration
	clock  clock.PassiveClock

	mu sync.Mutex
	// locked is guarded by mu.
	locked struct {
		byWorker    map[v1alpha1.ClusterName]*agent
		subscribers map[int]func(v1alpha1.ClusterName)
		next        int
	}
}

type agent struct {
	clusterID types.UID
	lease     *protocol.Hub
	// status of the connection, nil if there was no connection yet.
	status func() remote.Status
	// reported is the last summary that subscribers were notified of. missed: a caller has read another summary since,
	// because a summary also changes with time.
	reported summary
	missed   bool
	// answers counts the answers, for metrics.
	answers int
}

// summary is the part of an agent whose changes are reported to subscribers.
type summary struct {
	state   protocol.AgentState
	valid   bool
	longest time.Duration
}

func newAgents(margin time.Duration, clock clock.PassiveClock) *Agents {
	a := &Agents{margin: margin, clock: clock}
	a.locked.byWorker = map[v1alpha1.ClusterName]*agent{}
	a.locked.subscribers = map[int]func(v1alpha1.ClusterName){}
	return a
}

// Valid returns the last challenge that was answered on a cluster, and whether a copy that carries it will run: the
// agent is alive and considers the hub alive, and the challenge is young. If not, subscribers are notified when it is.
func (a *Agents) Valid(worker v1alpha1.ClusterName, clusterID types.UID) (challenge string, ok bool) {
	a.view(worker, clusterID, func(s *agent) {
		answered, valid := s.lease.Valid(a.clock.Now())
		challenge, ok = answered.String(), valid
	})
	return challenge, ok
}

// StoppedAt is when the fenced copies on a cluster must have stopped if the hub does not answer any more, by this
// process's clock. Each answer moves it. It is not known if no agent was alive at the last contact with the worker.
func (a *Agents) StoppedAt(worker v1alpha1.ClusterName, clusterID types.UID) (at time.Time, known bool) {
	a.view(worker, clusterID, func(s *agent) { at, known = s.lease.StoppedAt() })
	return at, known
}

// Agent is the state of a cluster's agent, and the longest fenceAfter that the agent may work with.
func (a *Agents) Agent(worker v1alpha1.ClusterName, clusterID types.UID) (state protocol.AgentState, longest time.Duration) {
	a.view(worker, clusterID, func(s *agent) { state, longest = s.lease.AgentState(), s.lease.Longest() })
	return state, longest
}

// Subscribe calls notify with the name of a worker after a change of its agent: whether it is alive, whether it is
// answered, or its fenceAfter. One more answer is no change. notify must not block.
func (a *Agents) Subscribe(notify func(worker v1alpha1.ClusterName)) (cancel func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := a.locked.next
	a.locked.next++
	a.locked.subscribers[key] = notify
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.locked.subscribers, key)
	}
}

// view reads what the hub knows of a cluster, up to the last contact with it.
func (a *Agents) view(worker v1alpha1.ClusterName, clusterID types.UID, read func(*agent)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.locked.byWorker[worker]; s != nil && s.clusterID == clusterID {
		s.countContact()
		read(s)
		s.missed = s.missed || s.summary(a.clock.Now()) != s.reported
	}
}

// note changes what the hub knows of a cluster. It forgets another cluster of the same name.
func (a *Agents) note(worker v1alpha1.ClusterName, clusterID types.UID, change func(*agent)) {
	a.mu.Lock()
	s := a.locked.byWorker[worker]
	if s == nil || s.clusterID != clusterID {
		s = &agent{clusterID: clusterID, lease: protocol.NewHub(a.margin)}
		a.locked.byWorker[worker] = s
	}
	change(s)
	s.countContact()
	now := s.summary(a.clock.Now())
	changed := now != s.reported || s.missed
	s.reported, s.missed = now, false
	subscribers := slices.Collect(maps.Values(a.locked.subscribers))
	a.mu.Unlock()
	if changed {
		for _, notify := range subscribers {
			notify(worker)
		}
	}
}

func (s *agent) countContact() {
	if s.status == nil {
		return
	}
	if c := s.status(); c.State == remote.Connected && c.ClusterID == s.clusterID {
		s.lease.Contact(c.Since, c.LastSeen)
	}
}

func (s *agent) summary(now time.Time) summary {
	_, valid := s.lease.Valid(now)
	return summary{state: s.lease.AgentState(), valid: valid, longest: s.lease.Longest()}
}
