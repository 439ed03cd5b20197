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

// tracker is what a replica knows of leases and copies.
type tracker struct {
	clock   clock.PassiveClock
	inboxes inboxes

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

// inboxes wake the controllers. The tracker adds keys with mu held, so they must not block.
type inboxes struct {
	// waiting wakes TrainJobs for which Gate was shut, stops wakes copies that may have to be stopped, leases wakes hubs.
	waiting, stops, leases adder
}

type adder interface {
	Add(key types.NamespacedName)
}

// hub is what the replica knows of one hub's lease.
type hub struct {
	agent protocol.Agent
	// uid of the lease, "" while there is no lease.
	uid types.UID
	// leased: there is or was a lease. The tracker forgets a hub that never had one when the hub's last copy is deleted.
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

func newTracker(clock clock.PassiveClock, inboxes inboxes) *tracker {
	return &tracker{clock: clock, inboxes: inboxes, hubs: map[string]*hub{}, copies: map[string]keys{}}
}

// hub returns what the tracker has about a hub. The caller holds the lock.
func (t *tracker) hub(id string) *hub {
	h, ok := t.hubs[id]
	if !ok {
		h = &hub{waiting: keys{}, refused: keys{}}
		h.agent.Answered(protocol.Challenge{}, orphanFenceAfter, t.clock.Now())
		t.hubs[id] = h
	}
	return h
}

// lead records that this replica leads from now on, until end is called.
func (t *tracker) lead() (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.term++
	t.leading++
	for id, h := range t.hubs {
		if h.uid != "" {
			t.inboxes.leases.Add(types.NamespacedName{Name: id})
		}
	}
	for id := range t.copies {
		t.inboxes.leases.Add(types.NamespacedName{Name: id})
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.leading--
	}
}

// leads says whether this replica leads. The caller holds the lock.
func (t *tracker) leads() bool { return t.leading > 0 }

// update changes what the tracker has about a hub, and wakes the TrainJobs and copies that the change concerns.
func (t *tracker) update(id string, change func(h *hub, now time.Time)) {
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.hub(id)
	state, deadline, latest, term := h.agent.State(now), h.agent.Deadline(), h.agent.Latest(), h.term
	change(h, now)
	t.attempts.Keep(h.agent.FenceAfter())
	t.tidy(id)
	stateChanged := state != h.agent.State(now)
	if h.agent.Open(now) && (stateChanged || deadline.Before(h.agent.Deadline()) || latest != h.agent.Latest()) {
		addTo(t.inboxes.waiting, h.waiting)
		clear(h.waiting)
	}
	if stateChanged || h.agent.Deadline().Before(deadline) || term != h.term {
		addTo(t.inboxes.stops, t.copies[id])
	}
}

func addTo(inbox adder, added keys) {
	for key := range added {
		inbox.Add(key)
	}
}

// view reads what the tracker has about a hub. It may write fields that wake nobody.
func (t *tracker) view(id string, read func(h *hub, now time.Time)) {
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	read(t.hub(id), now)
	t.tidy(id)
}

// tidy forgets a hub that has no copies and never had a lease. Only users with a cluster-wide right can create leases,
// so there are few hubs that had one. The caller holds the lock.
func (t *tracker) tidy(id string) {
	if h, ok := t.hubs[id]; ok && !h.leased && len(t.copies[id]) == 0 {
		delete(t.hubs, id)
	}
}

// name is the name of a hub in metrics. It takes the lock.
func (t *tracker) name(id string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h, ok := t.hubs[id]; ok && h.leased {
		return id
	}
	return unknownHub
}

// see records a copy that the watch shows: its attempt, and whether the agent may have to stop it.
func (t *tracker) see(job *trainer.TrainJob) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, key := hubOf(job), keyOf(job)
	if s := copyStateOf(job); s.Origin.UID != "" && t.attempts.Here(s, t.clock.Now()) {
		t.inboxes.waiting.Add(key)
	}
	if !isFenceable(job) {
		t.drop(id, key)
		return
	}
	if t.copies[id] == nil {
		t.copies[id] = keys{}
	}
	if _, known := t.copies[id][key]; !known && !t.hub(id).leased {
		t.hub(id).waiting[key] = struct{}{} // Gate may have refused it before, and the hub was forgotten.
	}
	t.copies[id][key] = struct{}{}
	if t.leads() && t.hub(id).term != t.term { // After the takeover its copies are reconciled, whoever saw this one first.
		t.inboxes.leases.Add(types.NamespacedName{Name: id})
	}
}

// gone records that a copy does not exist any more. The tracker still remembers its attempt.
func (t *tracker) gone(job *trainer.TrainJob) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := copyStateOf(job); s.Origin.UID != "" {
		t.attempts.Gone(s, t.clock.Now())
	}
	t.drop(hubOf(job), keyOf(job))
}

func (t *tracker) drop(id string, key types.NamespacedName) {
	delete(t.copies[id], key)
	if len(t.copies[id]) == 0 {
		delete(t.copies, id)
	}
	if h, ok := t.hubs[id]; ok {
		delete(h.waiting, key)
		delete(h.refused, key)
	}
	t.tidy(id)
}

// rank is the rank of a copy among the copies of its origin. The caller holds the lock.
func (t *tracker) rank(job *trainer.TrainJob, now time.Time) protocol.Rank {
	s := copyStateOf(job)
	if s.Origin.UID == "" {
		return protocol.Current
	}
	return t.attempts.Rank(s, now)
}

// later is the higher attempt that makes a copy outdated, 0 if the copy is not outdated.
func (t *tracker) later(job *trainer.TrainJob) int64 {
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	s := copyStateOf(job)
	if s.Origin.UID == "" {
		return 0
	}
	return t.attempts.Later(s, now)
}

// stopsFrom is when the agent may have to stop a copy, and false if this replica must not stop it. A replica stops what
// its own Gate has refused, also as a standby: the leader may admit the copy, and leave a copy alone that never starts.
func (t *tracker) stopsFrom(job *trainer.TrainJob) (time.Time, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := hubOf(job)
	h := t.hub(id)
	defer t.tidy(id)
	_, refused := h.refused[keyOf(job)]
	switch {
	case !t.leads():
		return h.agent.StopsFrom(), refused
	case h.term != t.term: // The takeover brings the copy again.
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
func (t *tracker) decide(job *trainer.TrainJob, c protocol.Copy) decision {
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.tidy(hubOf(job))
	c.Rank = t.rank(job, now)
	agent := &t.hub(hubOf(job)).agent
	d := decision{Decision: agent.Decide(c, now), answer: agent.Answer()}
	d.silence, d.heard = agent.Silence(now)
	return d
}
