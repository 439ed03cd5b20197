// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"sync"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/controllers/worker/trainjob/health"
)

// memory is what this process remembers of jobs that are not over. All of it may be lost at any time: it saves work and repetition,
// and decides nothing.
type memory struct {
	mu   sync.Mutex
	jobs map[types.NamespacedName]*jobMemory // under mu; what it points to belongs to the pass that works on the job
	// changes counts what has happened to a job's objects beside the JobSet, for jobs with an entry in jobs.
	changes map[types.NamespacedName]int // under mu
}

// jobMemory is what is remembered of one job. The queue gives a job to one pass at a time, so it needs no lock.
type jobMemory struct {
	uid types.UID
	// state in the last pass.
	state state
	// built is the last build of the job's objects that succeeded. nil: none.
	built *built
	// replacements is how often Jobs were made anew for the next resumption.
	replacements int
	// told is the last problem that was told in an Event, at toldAt.
	told   string
	toldAt time.Time
	// trouble is the last trouble with pods, or empty if there is none.
	trouble health.Trouble
	// restarts of the JobSet. -1: not known yet.
	restarts int32
	// waitingSince is since when the job waits for what goes by itself. Zero: it does not.
	waitingSince time.Time
	// waited: the job was seen before a step of it began, which none has since it was last resumed.
	waited bool
}

// built says for which versions of TrainJob and JobSet the objects were built.
type built struct {
	generation       int64
	jobSet           types.UID
	jobSetGeneration int64
	changes          int
}

func newMemory() *memory {
	return &memory{jobs: map[types.NamespacedName]*jobMemory{}, changes: map[types.NamespacedName]int{}}
}

// recall returns what is remembered of a job, which is nothing if it is another one of the same name.
func (m *memory) recall(job *trainer.TrainJob) *jobMemory {
	key := client.ObjectKeyFromObject(job)
	m.mu.Lock()
	defer m.mu.Unlock()
	past, ok := m.jobs[key]
	if ok && past.uid == job.UID {
		return past
	}
	if ok {
		countState(past.state, -1)
	}
	past = &jobMemory{uid: job.UID, restarts: -1}
	m.jobs[key] = past
	countState(past.state, +1)
	return past
}

// forget drops what is remembered of a job that is over.
func (m *memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if past, ok := m.jobs[key]; ok {
		countState(past.state, -1)
	}
	delete(m.jobs, key)
	delete(m.changes, key)
}

// noteChange says that an object of a job has changed or gone, so that a build has to look after it.
func (m *memory) noteChange(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.jobs[key]; ok {
		m.changes[key]++
	}
}

func (m *memory) changesOf(key types.NamespacedName) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changes[key]
}

// isCurrent says whether a build for the given observation would do what the last one did.
func (b *built) isCurrent(f observation, s state, changes int) bool {
	switch {
	case b == nil || b.generation != f.trainJob.Generation || b.changes != changes:
		return false
	case s == stateCreated:
		return false
	case s == stateSuspended:
		return f.jobSet != nil && b.jobSet == f.jobSet.UID && b.jobSetGeneration == f.jobSet.Generation
	default:
		return true
	}
}
