// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
)

// line is the queue of the jobs that wait, with the fleet that it decides on, under one lock: each decision sees what the one before
// it took.
type line struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// queue and fleet, under mu.
	queue   *queue.Queue
	fleet   *fleet
	opening opening
	// parked are the jobs that wait for something else than workers: they are not in the queue. Under mu.
	parked map[types.NamespacedName]struct{}
	// users are all that wait, by the runtime that they name. Under mu.
	users users
	// expected are the jobs that wait for their first look since the start, nil until they are known. Until all have had it nothing is
	// decided, so that it is not the first to come who is served first. Under mu.
	expected map[types.NamespacedName]struct{}
	// told is when a job's explanation was last written. Under mu.
	told map[types.NamespacedName]time.Time
	// explained are the explanations that have been made for a revision of the fleet, by what they are about. Under mu.
	explained   map[string][]v1alpha1.ClusterExplanation
	explainedAt uint64
	// due is when a pass is needed though nothing happens, as of the last one, and seen the revision of the fleet then. Under mu.
	due  time.Time
	seen uint64
}

// lister lists the WorkerClusters.
type lister func() ([]v1alpha1.WorkerCluster, error)

// round is what a pass has done.
type round struct {
	outcomes []queue.Outcome
	// rearm: the next pass that is needed though nothing happens is another one.
	rearm bool
	// changed: the workers are not what they were in the pass before, or this is the first.
	changed bool
}

func newLine(connections Connections, clock clock.PassiveClock) *line {
	return &line{
		clock:     clock,
		queue:     queue.New(),
		fleet:     newFleet(connections, clock),
		opening:   opening{clock: clock, connections: connections},
		parked:    map[types.NamespacedName]struct{}{},
		told:      map[types.NamespacedName]time.Time{},
		explained: map[string][]v1alpha1.ClusterExplanation{},
	}
}

// expect names the jobs that are to be looked at before anything is decided. Nothing is before they have been named.
func (l *line) expect(keys []types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opening.begin()
	l.expected = map[types.NamespacedName]struct{}{}
	for _, key := range keys {
		l.expected[key] = struct{}{}
	}
}

// met notes that a job has been looked at, and returns true if it was the last that was expected.
func (l *line) met(key types.NamespacedName) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, is := l.expected[key]; !is {
		return false
	}
	delete(l.expected, key)
	return len(l.expected) == 0
}

// stand puts a job in line, unless a pass has placed it meanwhile.
func (l *line) stand(job queue.Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.parked, job.Key())
	l.fleet.unpromise(job.UID) // It sees to its room itself.
	if a := l.fleet.ledger.byJob[job.UID]; a != nil && a.attempt >= job.Attempt {
		return
	}
	l.queue.Stand(job)
}

// park notes that a job waits for something else than workers. It returns true if others may go on because of that.
func (l *line) park(key types.NamespacedName) (helps bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	helps = l.queue.Has(key)
	l.queue.Leave(key)
	l.parked[key] = struct{}{}
	return l.fleet.unpromiseEnded(key) || helps
}

// leave takes a job out of line, and takes back a decision about it that has not been written. It returns true if others may go on
// because of that.
func (l *line) leave(key types.NamespacedName) (helps bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	helps = l.queue.Has(key)
	l.queue.Leave(key)
	delete(l.parked, key)
	delete(l.told, key)
	l.users.drop(key)
	helps = l.fleet.unpromiseEnded(key) || helps
	if a := l.fleet.ledger.grants[key]; a != nil {
		return l.fleet.release(a.uid)
	}
	return helps
}

// pass decides on what a change could help.
func (l *line) pass(workers lister) (round, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.advance(workers)
}

// advance makes a pass. It lists the workers under the lock, so that no pass sees older ones than the pass before. The caller holds mu.
func (l *line) advance(workers lister) (round, error) {
	var r round
	if l.expected == nil || len(l.expected) > 0 {
		return r, nil
	}
	objects, err := workers()
	if err != nil {
		return r, err
	}
	due, wasOpen := l.opening.until, l.opening.over
	if l.opening.look(objects) {
		l.fleet.refresh(objects)
		r.outcomes = l.queue.Pass(l.clock.Now(), l.fleet)
		due = earliest(l.queue.Next(), l.fleet.nextPatience())
	}
	r.rearm, l.due = !due.Equal(l.due), due
	r.changed, l.seen = wasOpen != l.opening.over || l.seen != l.fleet.revision, l.fleet.revision
	return r, nil
}

// earliest returns the earlier of two times, of which the zero time is none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// isOpen: passes are made. The caller holds mu.
func (l *line) isOpen() bool { return l.opening.over && l.expected != nil && len(l.expected) == 0 }

// answer says what a job in line waits for; false: it has not been decided on.
func (l *line) answer(key types.NamespacedName) (dispatch.Decision, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue.Answer(key)
}

// all are all that wait, those in line in order.
func (l *line) all() []types.NamespacedName {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append(l.queue.Keys(), slices.Collect(maps.Keys(l.parked))...)
}

// waits notes that a job waits, and which runtime it names.
func (l *line) waits(job, runtime types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users.put(job, runtime)
}

// using are the jobs that wait and name a runtime.
func (l *line) using(runtime types.NamespacedName) []types.NamespacedName {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.users.of(runtime)
}

// excluding are the jobs in line that a worker has refused.
func (l *line) excluding(worker v1alpha1.ClusterName) []types.NamespacedName {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue.Excluding(worker)
}

// next is how long until a pass is needed though nothing happens; false: none is.
func (l *line) next() (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.due.Sub(l.clock.Now())), !l.due.IsZero()
}

// granted returns the assignment of a job for an attempt, or a later one, as it is now; nil if it has none.
func (l *line) granted(uid types.UID, attempt int32) *assignment {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.fleet.ledger.byJob[uid]
	if a == nil || a.attempt < attempt {
		return nil
	}
	copied := *a
	return &copied
}

// written notes that the decision about a job is on the API server.
func (l *line) written(uid types.UID, attempt int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.fleet.ledger.byJob[uid]; a != nil && a.attempt == attempt {
		l.fleet.ledger.confirm(a)
		l.users.drop(a.key)
	}
}

// observe follows a Dispatch as the hub's cache shows it, and returns true if that has freed something. What was decided since
// stays.
func (l *line) observe(d *v1alpha1.Dispatch) (freed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	uid := d.Spec.TrainJob.UID
	known := l.fleet.ledger.byJob[uid]
	if known != nil && known.attempt > d.Spec.Attempt {
		return false
	}
	if d.IsFinished() {
		freed = l.fleet.unpromise(uid)
	}
	if d.Spec.Cluster == "" || d.IsFinished() || d.AttemptEnded() {
		return l.fleet.release(uid) || freed
	}
	if known == nil || known.worker != d.Spec.Cluster || known.attempt != d.Spec.Attempt {
		l.fleet.assign(&assignment{
			key: types.NamespacedName{Namespace: d.Namespace, Name: d.Name}, uid: uid, worker: d.Spec.Cluster, clusterID: d.Spec.ClusterID,
			attempt: d.Spec.Attempt, podSets: d.Spec.PodSets, priority: d.Spec.Priority, since: sinceOf(d), eviction: d.Spec.Eviction,
			evictedAt: evictedAtOf(d, l.clock.Now()),
		})
		return false
	}
	l.fleet.ledger.confirm(known) // It is on the API server, whatever the answer to the write was.
	if d.Spec.Eviction != nil || known.evictor.Name == "" {
		l.fleet.ledger.evict(known, d.Spec.Eviction, evictedAtOf(d, l.clock.Now()))
		known.evictor = types.NamespacedName{}
	}
	return false
}

// forget releases what a job held by an attempt, or an earlier one, whose decision was not written or whose Dispatch is gone. It
// returns true if that was something.
func (l *line) forget(uid types.UID, attempt int32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	helps := l.fleet.unpromise(uid)
	if a := l.fleet.ledger.byJob[uid]; a == nil || a.attempt > attempt {
		return helps
	}
	return l.fleet.release(uid)
}

// eviction returns the eviction of a job that has been decided and not been seen on its Dispatch, nil if there is none. It is taken
// back if whom it makes room for does not wait any more.
func (l *line) eviction(uid types.UID) *v1alpha1.Eviction {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.fleet.ledger.byJob[uid]
	if a == nil || a.eviction == nil || a.evictor.Name == "" {
		return nil
	}
	if evictor := l.queue.Job(a.evictor); evictor == nil || evictor.UID != a.eviction.For {
		l.fleet.ledger.evict(a, nil, time.Time{})
		return nil
	}
	return a.eviction
}

// telling returns when a job's explanation was last written, and told notes that it has been.
func (l *line) telling(key types.NamespacedName) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.told[key]
}

func (l *line) tell(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told[key] = l.clock.Now()
}
