// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// memory is what the Controller knows of its live keys beyond the caches.
type memory struct {
	mu sync.Mutex
	// recollections, under mu. A pointer is used by one reconcile at a time, because a key is.
	recollections map[types.NamespacedName]*recollection
}

// recollection is about one attempt of one TrainJob. All times are of this process's clock.
type recollection struct {
	origin  types.UID
	attempt int32

	// noticed is when the attempt was first seen here.
	noticed time.Time
	// created is the copy as the worker answered to its creation, until the cache shows it.
	created *unstructured.Unstructured
	// uid of the copy that was created or seen, empty before.
	uid types.UID
	// copied is true once the attempt's copy has been created or seen.
	copied bool
	// foundCopied is true if the Dispatch said that the attempt has a copy when this process first saw it.
	foundCopied bool
	// copiedAt is when copied became true.
	copiedAt time.Time
	// propagatedAt is when a runtime that the copy needs was last written to the worker.
	propagatedAt time.Time
	// ended is true once this attempt has been reported as ended without a copy. The cache may not show it yet.
	ended bool
	// changedAt is when the copy's status was first seen to differ from the hub's, zero while they agree.
	changedAt time.Time
	// course is what the copy's JobSet was last seen to say, nil if it was never seen. The JobSet may be gone before its copy ends.
	course *course
	// progressedAt is when the Dispatch was first seen to show other steps or restarts than there are, zero while it shows them.
	progressedAt time.Time
	// pushed is the hash of the status last written to the hub, and pushedAt is when that was.
	pushed   uint64
	pushedAt time.Time
	// failures counts answers to the creation in which the worker said that something is wrong with it, and failing is when it did first.
	failures int
	failing  time.Time
	// hung is how long creations took, all in all, that brought neither a copy nor a refusal. gaveUp says why no more are
	// sent, nil while some are.
	hung   time.Duration
	gaveUp error
	// taken is when the name of the copy was first seen to be that of a copy of an earlier TrainJob which is being
	// deleted, zero before.
	taken time.Time
	// unanswered counts the creations of the copy that got no answer, with those that a mirror before may have sent, and unansweredAt is when the last of them was given up. answered is
	// true if the copy is that of another one.
	unanswered   int
	unansweredAt time.Time
	answered     bool
	// unleased is when the copy was first not created because the worker's agent does not answer, zero while it does.
	unleased time.Time
	// queued is true once the worker's Kueue was seen to have a Workload for the copy, and suspendedAt is when the copy was first seen
	// suspended without one.
	queued      bool
	suspendedAt time.Time
	// checked is the generation of the copy whose spec was last found to be as it should, and restored how often the copy was changed back.
	checked int64
	// restored counts as long as the last time, restoredAt, is not longer ago than restoreMemory.
	restored   int
	restoredAt time.Time
	// verified is true once a Dispatch that this process found at its start was compared with the API server's.
	verified bool
	// warned is true once an Event has said why nothing is done.
	warned bool
	// endSeen is when the copy was first seen Complete or Failed.
	endSeen time.Time
}

// giveIn is true if somebody has changed the copy again and again.
func (r *recollection) giveIn(now time.Time) bool {
	if now.Sub(r.restoredAt) > restoreMemory {
		r.restored = 0
	}
	return r.restored >= restoreLimit
}

// noteRestored counts that the copy was changed back.
func (r *recollection) noteRestored(now time.Time) {
	r.restored++
	r.restoredAt = now
}

// of returns the recollection of an attempt; for another origin or attempt than the remembered one it is made anew.
func (m *memory) of(
	key types.NamespacedName, origin types.UID, attempt int32, anew func() *recollection,
) *recollection {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.recollections == nil {
		m.recollections = map[types.NamespacedName]*recollection{}
	}
	r := m.recollections[key]
	if r == nil || r.origin != origin || r.attempt != attempt {
		r = anew()
		m.recollections[key] = r
	}
	return r
}

func (m *memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.recollections, key)
}
