// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"sync"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/internal/health"
)

// knownJobs is what this process remembers of jobs that have not ended. It saves work and Events, and decides nothing.
type knownJobs struct {
	mu   sync.Mutex
	jobs map[types.NamespacedName]*knownJob // under mu; only the pass that works on the job uses a knownJob
	// changes counts changes and deletions of a job's objects besides the JobSet, for jobs with an entry in jobs.
	changes map[types.NamespacedName]int // under mu
	// health has its own lock.
	health health.Jobs
}

// knownJob is what the process remembers of one job. It needs no lock: the queue gives a job to one pass at a time.
type knownJob struct {
	uid types.UID
	// state is the state in the last pass.
	state state
	// built is the last successful build of the job's objects. nil: none.
	built *built
	// replacements is how often Jobs were replaced for the next resumption.
	replacements int
	// reported is the last problem that an Event reported, at reportedAt.
	reported   string
	reportedAt time.Time
	// trouble is the last known trouble with pods. Empty: none.
	trouble health.Trouble
	// warning is what an Event said about why no pod is ready, while that is the trouble.
	warning warning
	// restarts is the JobSet's last known number of restarts. -1: not known yet.
	restarts int32
	// waitingSince is when the job began to wait for a deletion that others do. Zero: it does not wait.
	waitingSince time.Time
	// waited: no step of the job has begun since its creation or last resumption, and this process has seen it wait.
	waited bool
}

// warningLife is how long the words of an Event count until Events are read again. None: the Event may be to come.
func warningLife(words string) time.Duration {
	if words == "" {
		return 30 * time.Second
	}
	return 5 * time.Minute
}

// warning is what an Event said when Events were read. The zero value: not read yet.
type warning struct {
	words string
	read  time.Time
}

// built says for which versions of TrainJob and JobSet the objects were built.
type built struct {
	generation       int64
	jobSet           types.UID
	jobSetGeneration int64
	changes          int
}

func newKnownJobs() *knownJobs {
	return &knownJobs{jobs: map[types.NamespacedName]*knownJob{}, changes: map[types.NamespacedName]int{}}
}

// recall returns what is remembered of a job. It forgets an earlier job with the same name.
func (k *knownJobs) recall(job *trainer.TrainJob) *knownJob {
	key := client.ObjectKeyFromObject(job)
	k.mu.Lock()
	defer k.mu.Unlock()
	past, ok := k.jobs[key]
	if ok && past.uid == job.UID {
		return past
	}
	if ok {
		countState(past.state, -1)
	}
	past = &knownJob{uid: job.UID, restarts: -1}
	k.jobs[key] = past
	countState(past.state, +1)
	return past
}

func (k *knownJobs) forget(key types.NamespacedName) {
	k.health.Forget(key)
	k.mu.Lock()
	defer k.mu.Unlock()
	if past, ok := k.jobs[key]; ok {
		countState(past.state, -1)
	}
	delete(k.jobs, key)
	delete(k.changes, key)
}

// noteChange records that an object of a job was changed or deleted, so that the next pass builds it again.
func (k *knownJobs) noteChange(key types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.jobs[key]; ok {
		k.changes[key]++
	}
}

func (k *knownJobs) changesOf(key types.NamespacedName) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changes[key]
}

// isCurrent says whether a build for this observation would do the same as the last build.
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
