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

// orphanFenceAfter is the fence time of a hub that has copies but no lease.
const orphanFenceAfter = 2 * time.Minute

// book is what a replica knows of leases and copies.
type book struct {
	clock clock.PassiveClock
	bells bells

	mu sync.Mutex
	// Under mu:
	hubs     map[string]*hub
	attempts protocol.Attempts
	// copies are those that may have to be stopped, by hub. A hub is what a label says, which anybody may have written.
	copies map[string]keys
	// term counts how often this replica has come to lead. leading is how many of these times have not ended: the end of one may be
	// late.
	term    int64
	leading int
}

type keys map[types.NamespacedName]struct{}

// bells wake the controllers. They are rung under the lock: none of them blocks.
type bells struct {
	// waiting are TrainJobs for which Gate was shut, stops the copies that may have to be stopped, leases the hubs.
	waiting, stops, leases bell
}

type bell interface {
	Add(key types.NamespacedName)
}

// hub is what is known of one hub's lease.
type hub struct {
	agent protocol.Agent
	// uid of the lease, "" while there is none.
	uid types.UID
	// leased: there is a lease, or there was. The book forgets hubs that never had one with their copies.
	leased bool
	// term in which this replica has taken over, with run. 0: it has not.
	term, run int64
	// number of the last challenge of this run that was sent, at sent.
	number int64
	sent   time.Time
	// written and failed count challenges, for metrics.
	written, failed int
	// waiting are TrainJobs for which Gate was shut for now, refused those for which it was for good.
	waiting, refused keys
}

func newBook(clock clock.PassiveClock, bells bells) *book {
	return &book{clock: clock, bells: bells, hubs: map[string]*hub{}, copies: map[string]keys{}}
}

// hub returns what is known of a hub. The caller has the lock.
func (b *book) hub(id string) *hub {
	h, ok := b.hubs[id]
	if !ok {
		h = &hub{waiting: keys{}, refused: keys{}}
		h.agent.Answered(protocol.Challenge{}, orphanFenceAfter, b.clock.Now())
		b.hubs[id] = h
	}
	return h
}

// lead notes that this replica leads from now on, until end is called.
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

// leads says whether this replica leads. The caller has the lock.
func (b *book) leads() bool { return b.leading > 0 }

// update changes what is known of a hub, and wakes those for whom that is news.
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

// look reads what is known of a hub, and writes what is no news to anybody.
func (b *book) look(id string, read func(h *hub, now time.Time)) {
	now := b.clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	read(b.hub(id), now)
	b.tidy(id)
}

// tidy forgets a hub that has no copies and never had a lease. Only who has a right in the whole cluster can create
// leases, so the hubs that had one stay few. The caller has the lock.
func (b *book) tidy(id string) {
	if h, ok := b.hubs[id]; ok && !h.leased && len(b.copies[id]) == 0 {
		delete(b.hubs, id)
	}
}

// name of a hub in metrics. The caller need not have the lock.
func (b *book) name(id string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h, ok := b.hubs[id]; ok && h.leased {
		return id
	}
	return unknownHub
}

// see notes a copy, as the watch shows it: its attempt, and whether it may have to be stopped.
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
		b.hub(id).waiting[key] = struct{}{} // Gate may have been asked before, and the hub forgotten since.
	}
	b.copies[id][key] = struct{}{}
}

// gone notes that a copy does not exist any more. Its attempt is remembered.
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

// standing is that of a copy beside others of its origin. The caller has the lock.
func (b *book) standing(job *trainer.TrainJob, now time.Time) protocol.Standing {
	s := copyStateOf(job)
	if s.Origin.UID == "" {
		return protocol.Current
	}
	return b.attempts.Standing(s, now)
}

// later is the attempt because of which a copy is outdated, 0 if it is not.
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

// stopsFrom is when a copy may have to be stopped, and false if this replica is not to do it. What its own Gate has refused it stops
// itself: the one that leads may know better, and would leave alone what then never starts.
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
		b.bells.leases.Add(types.NamespacedName{Name: id}) // When it is taken over, the copies come back.
		return time.Time{}, false
	default:
		return h.agent.StopsFrom(), true
	}
}

// decision about a copy, and what an Event about it may say.
type decision struct {
	protocol.Decision
	// answer is what the copy is marked with.
	answer string
	// silence is for how long nothing was heard from the hub. heard is false if nothing ever was.
	silence time.Duration
	heard   bool
}

// decide says what to do about a copy.
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
