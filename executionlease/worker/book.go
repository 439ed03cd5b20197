// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"sync"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/trainyard/trainyard/executionlease/protocol"
)

// orphanFenceAfter is the fenceAfter of a hub that has copies but no lease.
const orphanFenceAfter = 2 * time.Minute

// book is what a replica knows of leases and copies.
type book struct {
	clock clock.PassiveClock
	bells bells

	mu sync.Mutex
	// Under mu:
	hubs     map[string]*hub
	attempts protocol.Attempts
	// copies has the copies that may have to be stopped, by hub. The hub comes from a label that anybody may write.
	copies map[string]keys
	// term counts how often this replica has become the leader. leading counts the terms that have not ended. A term may
	// end after the next one has begun.
	term    int64
	leading int
}

type keys map[types.NamespacedName]struct{}

// bells wake the controllers. The book calls them with mu held, so they must not block.
type bells struct {
	// waiting wakes TrainJobs for which Gate was shut, stops wakes copies that may have to be stopped, leases wakes hubs.
	waiting, stops, leases bell
}

type bell interface {
	Add(key types.NamespacedName)
}

// hub is what the replica knows of one hub's lease.
type hub struct {
	agent protocol.Agent
	// uid of the lease, "" while there is no lease.
	uid types.UID
	// leased: there is or was a lease. The book forgets a hub that never had one when the hub's last copy is deleted.
	leased bool
	// term is the term in which this replica took over the lease, 0 if it has not. run is the run that it began then.
	term, run int64
	// number is the number of the last challenge of this run. sent is when the replica sent it.
	number int64
	sent   time.Time
	// written and failed count challenges, for metrics.
	written, failed int
	// waiting has the TrainJobs that Gate may let start later. refused has the TrainJobs that Gate has refused.
	waiting, refused keys
}

func newBook(clock clock.PassiveClock, bells bells) *book {
	return &book{clock: clock, bells: bells, hubs: map[string]*hub{}, copies: map[string]keys{}}
}

// hub returns what the book has about a hub. The caller holds the lock.
func (b *book) hub(id string) *hub {
	h, ok := b.hubs[id]
	if !ok {
		h = &hub{waiting: keys{}, refused: keys{}}
		h.agent.Answered(protocol.Challenge{}, orphanFenceAfter, b.clock.Now())
		b.hubs[id] = h
	}
	return h
}

// lead records that this replica leads from now on, until end is called.
func (b *book) lead() (end func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.term++
	b.leading++
	for id, h := range b.hubs {
		if h.uid != "" {
			b.bells.leases.Add(types.NamespacedName{Name: id})
		}
	}
	for id := range b.copies {
		b.bells.leases.Add(types.NamespacedName{Name: id})
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.leading--
	}
}

// leads says whether this replica leads. The caller holds the lock.
func (b *book) leads() bool { return b.leading > 0 }

// update changes what the book has about a hub, and wakes the TrainJobs and copies that the change concerns.
func (b *book) update(id string, change func(h *hub, now time.Time)) {
	now := b.clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.hub(id)
	state, deadline, latest, term := h.agent.State(now), h.agent.Deadline(), h.agent.Latest(), h.term
	change(h, now)
	b.attempts.Keep(h.agent.FenceAfter())
	b.tidy(id)
	stateChanged := state != h.agent.State(now)
	if h.agent.Open(now) && (stateChanged || deadline.Before(h.agent.Deadline()) || latest != h.agent.Latest()) {
		ring(b.bells.waiting, h.waiting)
		clear(h.waiting)
	}
	if stateChanged || h.agent.Deadline().Before(deadline) || term != h.term {
		ring(b.bells.stops, b.copies[id])
	}
}

func ring(bell bell, whom keys) {
	for key := range whom {
		bell.Add(key)
	}
}

// look reads what the book has about a hub. It may write fields that wake nobody.
func (b *book) look(id string, read func(h *hub, now time.Time)) {
	now := b.clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	read(b.hub(id), now)
	b.tidy(id)
}

// tidy forgets a hub that has no copies and never had a lease. Only users with a cluster-wide right can create leases,
// so there are few hubs that had one. The caller holds the lock.
func (b *book) tidy(id string) {
	if h, ok := b.hubs[id]; ok && !h.leased && len(b.copies[id]) == 0 {
		delete(b.hubs, id)
	}
}

// name is the name of a hub in metrics. It takes the lock.
func (b *book) name(id string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h, ok := b.hubs[id]; ok && h.leased {
		return id
	}
	return unknownHub
}

// see records a copy that the watch shows: its attempt, and whether the agent may have to stop it.
func (b *book) see(job *trainer.TrainJob) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id, key := hubOf(job), keyOf(job)
	if s := copyStateOf(job); s.Origin.UID != "" && b.attempts.Here(s, b.clock.Now()) {
		b.bells.waiting.Add(key)
	}
	if !isFenceable(job) {
		b.drop(id, key)
		return
	}
	if b.copies[id] == nil {
		b.copies[id] = keys{}
	}
	if _, known := b.copies[id][key]; !known && !b.hub(id).leased {
		b.hub(id).waiting[key] = struct{}{} // Gate may have refused it before, and the hub was forgotten.
	}
	b.copies[id][key] = struct{}{}
}

// gone records that a copy does not exist any more. The book still remembers its attempt.
func (b *book) gone(job *trainer.TrainJob) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := copyStateOf(job); s.Origin.UID != "" {
		b.attempts.Gone(s, b.clock.Now())
	}
	b.drop(hubOf(job), keyOf(job))
}

func (b *book) drop(id string, key types.NamespacedName) {
	delete(b.copies[id], key)
	if len(b.copies[id]) == 0 {
		delete(b.copies, id)
	}
	if h, ok := b.hubs[id]; ok {
		delete(h.waiting, key)
		delete(h.refused, key)
	}
	b.tidy(id)
}

// standing is the standing of a copy among the copies of its origin. The caller holds the lock.
func (b *book) standing(job *trainer.TrainJob, now time.Time) protocol.Standing {
	s := copyStateOf(job)
	if s.Origin.UID == "" {
		return protocol.Current
	}
	return b.attempts.Standing(s, now)
}

// later is the higher attempt that makes a copy outdated, 0 if the copy is not outdated.
func (b *book) later(job *trainer.TrainJob) int64 {
	now := b.clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	s := copyStateOf(job)
	if s.Origin.UID == "" {
		return 0
	}
	return b.attempts.Later(s, now)
}

// stopsFrom is when the agent may have to stop a copy, and false if this replica must not stop it. A replica stops what
// its own Gate has refused, also as a standby: the leader may admit the copy, and leave a copy alone that never starts.
func (b *book) stopsFrom(job *trainer.TrainJob) (time.Time, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := hubOf(job)
	h := b.hub(id)
	defer b.tidy(id)
	_, refused := h.refused[keyOf(job)]
	switch {
	case !b.leads():
		return h.agent.StopsFrom(), refused
	case h.term != b.term:
		b.bells.leases.Add(types.NamespacedName{Name: id}) // After the takeover the copies are reconciled again.
		return time.Time{}, false
	default:
		return h.agent.StopsFrom(), true
	}
}

// decision is what to do about a copy, with the values for its Event.
type decision struct {
	protocol.Decision
	// answer is the value of the mark that the agent writes on the copy.
	answer string
	// silence is how long the hub has been silent. heard is false if the hub never answered.
	silence time.Duration
	heard   bool
}

// decide decides what to do about a copy.
func (b *book) decide(job *trainer.TrainJob, c protocol.Copy) decision {
	now := b.clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.tidy(hubOf(job))
	c.Standing = b.standing(job, now)
	agent := &b.hub(hubOf(job)).agent
	d := decision{Decision: agent.Decide(c, now), answer: agent.Answer()}
	d.silence, d.heard = agent.Silence(now)
	return d
}
