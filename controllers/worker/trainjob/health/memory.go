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

// Memory is what one process has seen of jobs and when, by its own clock. It may be lost: it then counts from anew, but a trouble
// that the job is known to have stays. The zero value is ready for use, by several goroutines.
type Memory struct {
	mu   sync.Mutex
	jobs map[types.NamespacedName]*history // under mu
}

// history is what was seen of a job.
type history struct {
	idle, unscheduled, running stretch
	crashes                    int32
	crashed                    time.Time
	progress                   uint64
	progressed                 time.Time
}

// stretch is for how long something has been so. A zero from is: since before anybody looked.
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

// Observe looks at a job and writes into in what was seen of it until now: Seen and ProgressSeen. Call it at each pass for a job
// that is meant to run, before Diagnose. What was seen of an earlier attempt, or of a job that had the name before, does no harm:
// Diagnose counts from in.Since at the earliest.
//
// standing is the Reason of the trouble that the job is said to have at present, "" if none: from a condition, it survives the
// process. If this one has seen nothing of the job yet, it believes that this trouble has lasted since the attempt began.
func (m *Memory) Observe(job types.NamespacedName, in *Input, standing string, now time.Time) {
	places := survey(in.Pods)
	m.mu.Lock()
	defer m.mu.Unlock()
	s, known := m.jobs[job]
	if !known {
		s = newHistory(in, places, standing, now)
		if m.jobs == nil {
			m.jobs = map[types.NamespacedName]*history{}
		}
		m.jobs[job] = s
	}
	s.see(in.Progress, places, now)
	in.ProgressSeen = s.progressed
	in.Seen = Seen{Idle: s.idle.from, Unscheduled: s.unscheduled.from, Running: s.running.from, Crash: s.crashed}
}

// Forget is for jobs that are gone, have ended or are suspended.
func (m *Memory) Forget(job types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.jobs, job)
}

func newHistory(in *Input, places []place, standing string, now time.Time) *history {
	s := &history{crashes: crashes(places), progress: fingerprint(in.Progress), progressed: now}
	switch standing {
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

func (s *history) see(progress *trainer.TrainerStatus, places []place, now time.Time) {
	s.idle.see(idle(places), now)
	s.unscheduled.see(unscheduled(places), now)
	s.running.see(running(places), now)
	// Pods that went take their crashes with them; that is none.
	if n := crashes(places); n != s.crashes {
		if n > s.crashes {
			s.crashed = now
		}
		s.crashes = n
	}
	if f := fingerprint(progress); f != s.progress {
		s.progress, s.progressed = f, now
	}
}

// fingerprint tells two reports of progress apart. A report that says the same at another time is another one.
func fingerprint(progress *trainer.TrainerStatus) uint64 {
	if progress == nil {
		return 0
	}
	h := fnv.New64a()
	if err := json.NewEncoder(h).Encode(progress); err != nil {
		return 0 // There is no value of this type that JSON cannot say, and a hash takes everything.
	}
	return h.Sum64()
}
