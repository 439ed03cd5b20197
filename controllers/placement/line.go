// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"
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
	queue *queue.Queue
	fleet *fleet
	// parked are the jobs that wait for something else than workers: they are not in the queue. Under mu.
	parked map[types.NamespacedName]struct{}
	// expected are the jobs that wait for their first look since the start, nil until they are known. Until all have had it nothing is
	// decided, so that it is not the first to come who is served first. Under mu.
	expected map[types.NamespacedName]struct{}
	// told is when a job's explanation was last written. Under mu.
	told map[types.NamespacedName]time.Time
	// explained are the explanations that have been made for a revision of the fleet, by what they are about. Under mu.
	explained   map[string][]v1alpha1.ClusterExplanation
	explainedAt uint64
	// due is when a pass is needed though nothing happens, as of the last one. Under mu.
	due time.Time
}

func newLine(connections Connections, clock clock.PassiveClock) *line {
	return &line{
		clock:     clock,
		queue:     queue.New(),
		fleet:     newFleet(connections, clock),
		parked:    map[types.NamespacedName]struct{}{},
		told:      map[types.NamespacedName]time.Time{},
		explained: map[string][]v1alpha1.ClusterExplanation{},
	}
}

// expect names the jobs that are to be looked at before anything is decided. Nothing is before they have been named.
func (l *line) expect(keys []types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
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
	return helps
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
	if a := l.fleet.ledger.grants[key]; a != nil {
		return l.fleet.release(a.uid)
	}
	return helps
}

// pass decides on what a change could help. It lists the workers under the lock, so that no pass sees older ones than the pass before.
// rearm: the next pass that is needed though nothing happens is another one.
func (l *line) pass(workers func() ([]v1alpha1.WorkerCluster, error)) (outcomes []queue.Outcome, rearm bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.expected == nil || len(l.expected) > 0 {
		return nil, false, nil
	}
	objects, err := workers()
	if err != nil {
		return nil, false, err
	}
	l.fleet.refresh(objects)
	outcomes = l.queue.Pass(l.clock.Now(), l.fleet)
	due := l.queue.Next()
	if l.fleet.settling && (due.IsZero() || l.fleet.settled.Before(due)) {
		due = l.fleet.settled
	}
	rearm, l.due = !due.Equal(l.due), due
	return outcomes, rearm, nil
}

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
	if d.Spec.Cluster == "" || d.IsFinished() || d.AttemptEnded() {
		return l.fleet.release(uid)
	}
	if known == nil || known.worker != d.Spec.Cluster || known.attempt != d.Spec.Attempt {
		l.fleet.assign(&assignment{
			key: types.NamespacedName{Namespace: d.Namespace, Name: d.Name}, uid: uid, worker: d.Spec.Cluster, clusterID: d.Spec.ClusterID,
			attempt: d.Spec.Attempt, podSets: d.Spec.PodSets, priority: d.Spec.Priority, since: sinceOf(d), eviction: d.Spec.Eviction,
		})
		return false
	}
	l.fleet.ledger.confirm(known) // It is on the API server, whatever the answer to the write was.
	if d.Spec.Eviction != nil || known.evictor.Name == "" {
		l.fleet.ledger.evict(known, d.Spec.Eviction)
		known.evictor = types.NamespacedName{}
	}
	return false
}

// forget releases what a job held by an attempt, or an earlier one, whose decision was not written or whose Dispatch is gone. It
// returns true if that was something.
func (l *line) forget(uid types.UID, attempt int32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.fleet.ledger.byJob[uid]; a == nil || a.attempt > attempt {
		return false
	}
	return l.fleet.release(uid)
}

// suspend says whether an assigned job is suspended, and returns true if that has freed something.
func (l *line) suspend(uid types.UID, suspended bool) (freed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.fleet.ledger.byJob[uid]
	if a == nil || a.suspended == suspended {
		return false
	}
	a.suspended = suspended
	l.fleet.outdate(a.worker)
	return suspended
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
		l.fleet.ledger.evict(a, nil)
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

// maxExplained is how many explanations are kept until something changes.
const maxExplained = 64

// explain says for every worker why it does or does not take the job. Jobs of the same class share what is returned.
func (l *line) explain(job *queue.Job) []v1alpha1.ClusterExplanation {
	known, sight, key, revision := l.sight(job)
	if known != nil {
		return known
	}
	explanation := sight.Explain(job)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.explainedAt == revision {
		l.explained[key] = explanation
	}
	return explanation
}

// sight returns the explanation of before if it is still right, or else what the job sees.
func (l *line) sight(job *queue.Job) (known []v1alpha1.ClusterExplanation, sight queue.Sight, key string, revision uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key = l.explanationKey(job)
	l.fleet.Workers() // It brings the revision up to date.
	if revision = l.fleet.revision; l.explainedAt != revision || len(l.explained) >= maxExplained {
		l.explained, l.explainedAt = map[string][]v1alpha1.ClusterExplanation{}, revision
	}
	if known = l.explained[key]; known == nil {
		sight = l.queue.Sight(job.Key(), l.fleet)
	}
	return known, sight, key, revision
}

// explanationKey tells apart jobs of which other things are said.
func (l *line) explanationKey(job *queue.Job) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n%q", job.Class, job.Previous, l.queue.Holders(job.Key()))
	for _, name := range slices.Sorted(maps.Keys(job.Excluded)) {
		fmt.Fprintf(&b, "\n%s\n%s\n%s", name, job.Excluded[name].Reason, job.Excluded[name].Message)
	}
	return b.String()
}
