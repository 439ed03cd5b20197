// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"net/http"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/faults/links"
)

// isolated runs jobs on south before and during a fault of another worker. The fault must not make them slower. A job
// that runs on the faulty worker stays there. A job for that worker gets there when the fault is over.
func isolated(t *testing.T, fault func(*links.Link) error, during func(*scenario, string)) {
	s, worker := patient(t)
	stays := s.submit("6s", on(worker), failover(v1alpha1.FailoverHold))
	s.Runs(stays, worker, 1)
	before := s.batch()

	s.fault(worker, fault)
	if during != nil {
		during(s, worker)
	}
	late := s.submit("1s", on(worker), failover(v1alpha1.FailoverHold))
	if took := s.batch(); took > 2*before+2*time.Second {
		t.Errorf("jobs of another worker took %v during the fault, and %v before", took, before)
	}

	s.heal(worker)
	s.ends(stays, late)
	s.Attempt(stays, 1)
	s.Attempt(late, 1)
}

// batch returns how long some jobs on south take.
func (s *scenario) batch() time.Duration {
	s.Helper()
	began := time.Now()
	var jobs []*trainer.TrainJob
	for range 4 {
		jobs = append(jobs, s.submit("1s", on(south)))
	}
	s.ends(jobs...)
	return time.Since(began)
}

func unreachable(s *scenario, worker string) {
	s.workerSays(worker, v1alpha1.WorkerClusterReady, v1alpha1.ReasonUnreachable)
}

// A worker's API server accepts connections and never answers.
func TestFaultHang(t *testing.T) { isolated(t, (*links.Link).Hang, unreachable) }

// Every answer takes more than a second.
func TestFaultSlow(t *testing.T) {
	isolated(t, func(l *links.Link) error { return l.Latency(1200*time.Millisecond, 300*time.Millisecond) }, nil)
}

// The network to a worker has a low bandwidth.
func TestFaultNarrow(t *testing.T) {
	isolated(t, func(l *links.Link) error { return l.Bandwidth(20) }, nil)
}

// Every connection is reset.
func TestFaultReset(t *testing.T) { isolated(t, (*links.Link).Reset, unreachable) }

// Connections are refused.
func TestFaultRefuse(t *testing.T) {
	isolated(t, func(l *links.Link) error { l.Refuse(); return nil }, unreachable)
}

// A worker answers 429 with Retry-After to everything.
func TestFaultThrottled(t *testing.T) {
	isolated(t, intercept(links.Answer(http.StatusTooManyRequests, 1)), nil)
}

// A worker answers 500 to everything.
func TestFaultServerErrors(t *testing.T) {
	isolated(t, intercept(links.Answer(http.StatusInternalServerError, 0)), unreachable)
}

// A worker's watches end every second, in an orderly way. That is normal: the worker stays Ready, and gets jobs.
func TestFaultWatchesDropped(t *testing.T) {
	s, worker := with(t)
	s.fault(worker, intercept(links.Watches(links.EndAfter(time.Second))))
	jobs := []*trainer.TrainJob{s.submit("2s", on(worker)), s.submit("4s", on(worker)), s.submit("6s", on(worker))}
	s.ends(jobs...)
	for _, job := range jobs {
		s.Attempt(job, 1)
	}
}

// A worker's watches end every second. Half of them cannot continue: the answer is 410 Gone, and the caches list again.
func TestFaultGone(t *testing.T) {
	s, worker := patient(t)
	s.fault(worker, intercept(links.Forget(time.Second)))
	jobs := []*trainer.TrainJob{s.submit("2s", on(worker)), s.submit("4s", on(worker)), s.submit("6s", on(worker))}
	s.ends(jobs...)
	for _, job := range jobs {
		s.Attempt(job, 1)
	}
}

func intercept(handler links.Handler) func(*links.Link) error {
	return func(l *links.Link) error { l.Intercept(handler); return nil }
}
