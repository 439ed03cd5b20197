// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Jobs of half a worker leave half of each node free. Jobs that ask for whole nodes wait, and cannot use these GPUs.
func TestMetricsOfWaitingJobs(t *testing.T) {
	s := newScene(t)
	for _, worker := range []string{string(east), string(west)} {
		s.Submit(t, "half-"+worker, pinned("region="+worker))
		if d, _ := s.reconcile(t, "half-"+worker); string(d.Spec.Cluster) != worker {
			t.Fatalf("half-%s is on %q", worker, d.Spec.Cluster)
		}
	}
	first, second := s.inLine(t, "one", "other", large, pinned("region=east"))
	s.expect(t, first, v1alpha1.ReasonNoFit)
	s.Clock.Step(time.Minute)
	s.expect(t, second, v1alpha1.ReasonQueued)
	s.Clock.Step(30 * time.Second)
	waiting := map[string]float64{
		"jobs  NoFit": 1, "jobs  Queued": 1, "devices  nvidia.com/gpu": 32, "first ": 90, "oldest ": 90, "unusable east": 8,
	}
	if diff := cmp.Diff(waiting, s.metrics(t)); diff != "" {
		t.Error(diff)
	}
	// A job that may use both workers.
	s.Submit(t, "anywhere", large)
	s.expect(t, "anywhere", v1alpha1.ReasonNoFit)
	waiting["jobs  NoFit"], waiting["devices  nvidia.com/gpu"], waiting["unusable west"] = 2, 48, 8
	if s.isBefore(t, "anywhere", first) {
		waiting["first "] = 0
	}
	if diff := cmp.Diff(waiting, s.metrics(t)); diff != "" {
		t.Error(diff)
	}
}

// inLine submits two jobs, and returns their names in the order of the waiting list.
func (s *scene) inLine(t *testing.T, one, other string, changes ...func(*trainer.TrainJob)) (first, second string) {
	t.Helper()
	s.Submit(t, one, changes...)
	s.Submit(t, other, changes...)
	if s.isBefore(t, one, other) {
		return one, other
	}
	return other, one
}

// isBefore says whether a job stands before another in the waiting list. Jobs of one second are in the order of their
// UIDs.
func (s *scene) isBefore(t *testing.T, one, other string) bool {
	t.Helper()
	a, b := s.TrainJob(t, one), s.TrainJob(t, other)
	age := a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	return age < 0 || age == 0 && a.UID < b.UID
}

// metrics returns what the collector writes, by short names and labels.
func (s *scene) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	names := map[*prometheus.Desc]string{
		waitingJobs: "jobs", waitingDevices: "devices", firstWaits: "first", oldestWaits: "oldest", unusableGPUs: "unusable",
	}
	got := map[string]float64{}
	defer s.reconciler.show(t.Context())()
	(*shown.Load())(func(desc *prometheus.Desc, value float64, labels ...string) {
		got[strings.Join(append([]string{names[desc]}, labels...), " ")] = value
	})
	return got
}

// Nothing is shown by a process that does not lead.
func TestNoMetricsWithoutWork(t *testing.T) {
	newScene(t)
	if n := testutil.CollectAndCount(collector{}); n != 0 {
		t.Errorf("a Reconciler that does not work shows %d metrics", n)
	}
}
