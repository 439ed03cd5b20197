// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
)

// TestPreemptions: what was in vain counts for the job and its namespace, and a copy ends it.
func TestPreemptions(t *testing.T) {
	job := func(namespace, name string) *queue.Job {
		return &queue.Job{Job: dispatch.Job{Namespace: namespace, Name: name, UID: types.UID(namespace + name)}}
	}
	a, other, stranger := job("n", "a"), job("n", "b"), job("m", "a")
	start := time.Now()
	p := newPreemptions()
	expect := func(what string, of *queue.Job, want time.Duration) {
		t.Helper()
		got := time.Duration(0)
		if until := p.pausedUntil(of); !until.IsZero() {
			got = max(0, until.Sub(start))
		}
		if got != want {
			t.Errorf("%s: %s/%s pauses until %s, want %s", what, of.Namespace, of.Name, got, want)
		}
	}
	expect("nothing has happened", a, 0)
	p.begin(a, false, start)
	expect("it may need more room than was found", a, time.Minute)
	expect("it is not in vain yet", other, 0)
	p.begin(a, true, start)
	expect("slow victims are not its fault", a, time.Minute)
	p.begin(a, false, start)
	expect("the first time was in vain", a, 2*time.Minute)
	expect("the namespace has had one in vain", other, time.Minute)
	expect("other namespaces do not care", stranger, 0)
	p.vain(a.UID, start)
	p.vain(a.UID, start)
	expect("the second counts once", other, 2*time.Minute)
	p.worth(stranger.UID)
	expect("another job has a copy", other, 2*time.Minute)
	p.worth(a.UID)
	expect("the job has a copy", a, 0)
	expect("the job has a copy", other, 0)
}
