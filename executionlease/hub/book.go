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

// Book is what the hub knows of the agents of all workers. Several goroutines may call its methods. They do no I/O.
type Book struct {
	margin time.Duration
	clock  clock.PassiveClock

	mu sync.Mutex
	// locked is guarded by mu.
	locked struct {
		pages       map[v1alpha1.ClusterName]*page
		subscribers map[int]func(v1alpha1.ClusterName)
		next        int
	}
}

// page is what the hub knows of the agent of one worker.
type page struct {
	clusterID types.UID
	lease     *protocol.Hub
	// status of the connection, nil if there was no connection yet.
	status func() remote.Status
	// told is what subscribers know. missed: a caller has read another summary since. A summary changes with time, too.
	told   summary
	missed bool
	// answers counts the answers, for metrics.
	answers int
}

// summary is the part of a page whose changes subscribers are told of.
type summary struct {
	presence protocol.Presence
	valid    bool
	longest  time.Duration
}

func newBook(margin time.Duration, clock clock.PassiveClock) *Book {
	b := &Book{margin: margin, clock: clock}
	b.locked.pages = map[v1alpha1.ClusterName]*page{}
	b.locked.subscribers = map[int]func(v1alpha1.ClusterName){}
	return b
}

// Valid returns the last challenge that was answered on a cluster, and whether a copy that carries it will run: the
// agent is alive and considers the hub alive, and the challenge is young. If it is not so, subscribers are told when it
// is.
func (b *Book) Valid(worker v1alpha1.ClusterName, clusterID types.UID) (challenge string, ok bool) {
	b.look(worker, clusterID, func(p *page) {
		answered, valid := p.lease.Valid(b.clock.Now())
		challenge, ok = answered.String(), valid
	})
	return challenge, ok
}

// StoppedAt is when the fenced copies on a cluster must have stopped if the hub does not answer any more, by this
// process's clock. Each answer moves it. It is not known if no agent was alive at the last contact with the worker.
func (b *Book) StoppedAt(worker v1alpha1.ClusterName, clusterID types.UID) (at time.Time, known bool) {
	b.look(worker, clusterID, func(p *page) { at, known = p.lease.StoppedAt() })
	return at, known
}

// Agent is the presence of the agent of a cluster, and the longest fenceAfter that the agent may work with.
func (b *Book) Agent(worker v1alpha1.ClusterName, clusterID types.UID) (presence protocol.Presence, longest time.Duration) {
	b.look(worker, clusterID, func(p *page) { presence, longest = p.lease.Presence(), p.lease.Longest() })
	return presence, longest
}

// Subscribe calls notify with the name of a worker after a change of its agent: whether it is alive, whether it is
// answered, or its fenceAfter. One more answer is no change. notify must not block.
func (b *Book) Subscribe(notify func(worker v1alpha1.ClusterName)) (cancel func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := b.locked.next
	b.locked.next++
	b.locked.subscribers[key] = notify
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.locked.subscribers, key)
	}
}

// look reads what the hub knows of a cluster, up to the last contact with it.
func (b *Book) look(worker v1alpha1.ClusterName, clusterID types.UID, read func(*page)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.locked.pages[worker]; p != nil && p.clusterID == clusterID {
		p.countContact()
		read(p)
		p.missed = p.missed || p.summary(b.clock.Now()) != p.told
	}
}

// note changes what the hub knows of a cluster. It forgets another cluster of the same name.
func (b *Book) note(worker v1alpha1.ClusterName, clusterID types.UID, change func(*page)) {
	b.mu.Lock()
	p := b.locked.pages[worker]
	if p == nil || p.clusterID != clusterID {
		p = &page{clusterID: clusterID, lease: protocol.NewHub(b.margin)}
		b.locked.pages[worker] = p
	}
	change(p)
	p.countContact()
	now := p.summary(b.clock.Now())
	changed := now != p.told || p.missed
	p.told, p.missed = now, false
	subscribers := slices.Collect(maps.Values(b.locked.subscribers))
	b.mu.Unlock()
	if changed {
		for _, notify := range subscribers {
			notify(worker)
		}
	}
}

func (p *page) countContact() {
	if p.status == nil {
		return
	}
	if s := p.status(); s.State == remote.Connected && s.ClusterID == p.clusterID {
		p.lease.Contact(s.Since, s.LastSeen)
	}
}

func (p *page) summary(now time.Time) summary {
	_, valid := p.lease.Valid(now)
	return summary{presence: p.lease.Presence(), valid: valid, longest: p.lease.Longest()}
}
