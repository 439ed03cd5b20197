// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package nomination

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// A worker that did not admit a job is not nominated again for minRefusal, and each time for twice as long, up to
// maxRefusal.
const minRefusal, maxRefusal = time.Minute, 30 * time.Minute

// progress is what this process has seen of a Workload, and done. A new process does not need it: it gives each
// nomination its time again, and asks each worker again.
type progress struct {
	uid types.UID
	// over is the resourceVersion that the Workload had when the last nomination was written. A cache that still shows it
	// lags.
	over string
	// nominee is the worker of nominated and cloned: since when this process has seen the nomination, and a clone there.
	// preempting is when it has last seen that Workloads are stopped for that clone.
	nominee                       v1alpha1.ClusterName
	nominated, cloned, preempting time.Time
	// settled is since when this process has seen the Workload settled.
	settled time.Time
	// refusals are of the workers that have not admitted the job.
	refusals map[v1alpha1.ClusterName]refusal
}

// refusal is a worker's.
type refusal struct {
	reason, message string
	times           int
	until           time.Time
}

// look notes what is seen of a nomination and its clone.
func (m *progress) look(nominee v1alpha1.ClusterName, state cloneState, now time.Time) {
	if m.nominee != nominee {
		m.nominee, m.nominated, m.cloned, m.preempting = nominee, now, time.Time{}, time.Time{}
	}
	if state == preempting {
		m.preempting = now
	}
	switch {
	case state == missing:
		m.cloned, m.preempting = time.Time{}, time.Time{}
	case state != unknown && m.cloned.IsZero():
		m.cloned = now
	}
}

// refuse notes that a worker has not admitted the job. While an earlier refusal lasts, it only takes the new words.
func (m *progress) refuse(worker v1alpha1.ClusterName, reason, message string, now time.Time) {
	if m.refusals == nil {
		m.refusals = map[v1alpha1.ClusterName]refusal{}
	}
	past := m.refusals[worker]
	past.reason, past.message = reason, message
	if !now.Before(past.until) {
		past.until = now.Add(min(minRefusal<<min(past.times, 5), maxRefusal))
		past.times++
	}
	m.refusals[worker] = past
}

// next is when the first refusal ends, zero if none counts.
func (m *progress) next(now time.Time) time.Time {
	var next time.Time
	for _, r := range m.refusals {
		if now.Before(r.until) && (next.IsZero() || r.until.Before(next)) {
			next = r.until
		}
	}
	return next
}
