// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"encoding/json"
	"hash/fnv"
	"sync"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
)

// Jobs is what one process has seen of jobs and when, by its own clock. A process may lose it. Then times count from
// now, but a job keeps its known trouble. The zero value is ready for use by several goroutines.
type Jobs struct {
	mu   sync.Mutex
	jobs map[types.NamespacedName]*history // under mu
}

type history struct {
	idle, unscheduled, running stretch
	crashes                    int32
	crashed                    time.Time
	progress                   uint64
	progressed                 time.Time
}

// stretch is how long a state has lasted. A zero from: the state began before the first look.
type stretch struct {
	on   bool
	from time.Time
}

func (s *stretch) see(on bool, now time.Time) {
	if on && !s.on {
		s.from = now
	}
	s.on = on
}

// Observe looks at a job and sets in.Seen and in.ProgressSeen to what it has seen of the job. Call it before Diagnose
// in each pass for a job that is meant to run. What was seen of an earlier attempt, or of an earlier job with the name,
// do no harm: Diagnose counts from in.Since at the earliest.
//
// recorded is the Reason of the job's present trouble, "" if none. A condition stores it, so it survives the process.
// If this process has not seen the job before, it assumes that this trouble has lasted since the attempt began.
func (m *Jobs) Observe(job types.NamespacedName, in *Input, recorded string, now time.Time) {
	slots := survey(in.Pods)
	m.mu.Lock()
	defer m.mu.Unlock()
	s, known := m.jobs[job]
	if !known {
		s = newHistory(in, slots, recorded, now)
		if m.jobs == nil {
			m.jobs = map[types.NamespacedName]*history{}
		}
		m.jobs[job] = s
	}
	s.see(in.Progress, slots, now)
	in.ProgressSeen = s.progressed
	in.Seen = Seen{Idle: s.idle.from, Unscheduled: s.unscheduled.from, Running: s.running.from, Crash: s.crashed}
}

// Forget forgets a job that has ended, is suspended or does not exist any more.
func (m *Jobs) Forget(job types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.jobs, job)
}

func newHistory(in *Input, slots []slot, recorded string, now time.Time) *history {
	s := &history{crashes: crashes(slots), progress: fingerprint(in.Progress), progressed: now}
	switch recorded {
	case NoPodReady:
		s.idle.on = true
	case Unschedulable:
		s.unscheduled.on = true
	case NoProgress:
		s.running.on, s.progressed = true, time.Time{}
	case CrashLoop:
		s.crashed = now
	}
	return s
}

func (s *history) see(progress *trainer.TrainerStatus, slots []slot, now time.Time) {
	s.idle.see(idle(slots), now)
	s.unscheduled.see(unscheduled(slots), now)
	s.running.see(running(slots), now)
	// The crashes of a deleted pod are not counted any more. A lower number is no new crash.
	if n := crashes(slots); n != s.crashes {
		if n > s.crashes {
			s.crashed = now
		}
		s.crashes = n
	}
	if f := fingerprint(progress); f != s.progress {
		s.progress, s.progressed = f, now
	}
}

// fingerprint tells two reports of progress apart. Reports with the same content and different times differ.
func fingerprint(progress *trainer.TrainerStatus) uint64 {
	if progress == nil {
		return 0
	}
	h := fnv.New64a()
	if err := json.NewEncoder(h).Encode(progress); err != nil {
		return 0 // Cannot happen: JSON can express every value of this type, and a hash accepts every write.
	}
	return h.Sum64()
}
