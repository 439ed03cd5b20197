// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/stage"
)

// A finished copy is deleted in the background. If a pod of it is alive, or may be, it is deleted in the foreground.
func TestFinishedCopyGoesInBackground(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		// phase is the phase of the job's pod, empty for no pod.
		phase      corev1.PodPhase
		running    bool
		unknown    bool
		background bool
	}{
		"NoPods":        {reason: "there is nothing to wait for", background: true},
		"PodsHaveEnded": {reason: "they may go after the copy", phase: corev1.PodSucceeded, background: true},
		"PodRuns":       {reason: "it is ending, or the success of another step is enough", phase: corev1.PodRunning},
		"PodPending":    {reason: "it may run", phase: corev1.PodPending},
		"PodLost":       {reason: "its node does not answer", phase: corev1.PodUnknown},
		"PodsUnknown":   {reason: "the hub watches no pods of this worker", unknown: true},
		"CopyRuns":      {reason: "it does not say itself that it has ended", running: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.finishedCopy(t, !test.running)
			if test.phase != "" {
				s.runIn(t, test.phase)
			}
			if test.unknown {
				s.options[workerName].WorkerCache = s.reporting(t).Cache()
				s.restart()
			}
			s.Clock.Step(retention)
			s.collect(t)
			if !test.background {
				expectDeleted(t, s.copy(t))
			} else if copy := s.copy(t); copy != nil {
				t.Errorf("the copy was deleted in the foreground, though %s: %v", test.reason, copy.GetFinalizers())
			}
		})
	}
}

// The deletion of a finished copy waits for the end of a burst of jobs, but not longer than a minute.
func TestDeletionWaitsForBurst(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		ends   bool
	}{
		"BurstEnds":   {reason: "nobody needs the API servers more", ends: true},
		"BurstGoesOn": {reason: "its minute is over"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			busy := true
			s.options[workerName].Busy = func() bool { return busy }
			s.restart()
			copy := s.finishedCopy(t, true)
			s.Clock.Step(retention)
			for waited := time.Duration(0); waited < time.Minute; {
				later := s.collect(t).RequeueAfter
				if later <= 0 || later > time.Minute-waited {
					t.Fatalf("after %s a copy is looked at again in %s, want later, and within a minute in all", waited, later)
				}
				if diff := cmp.Diff(copy, s.copy(t)); diff != "" {
					t.Fatalf("the copy was touched in a burst (-before +after):\n%s", diff)
				}
				s.Clock.Step(later)
				waited += later
				if test.ends {
					busy = false
					s.Clock.Step(5 * time.Second) // A burst has shorter pauses than this.
					break
				}
			}
			if result := s.collect(t); result.RequeueAfter != 0 || s.copy(t) != nil {
				t.Errorf("the copy is still there, and looked at again after %s, though %s", result.RequeueAfter, test.reason)
			}
		})
	}
}

// The deletion of an outdated copy waits for no burst: the job's next copy needs its name.
func TestOutdatedCopyWaitsForNothing(t *testing.T) {
	s := newScene(t)
	s.options[workerName].Busy = func() bool { return true }
	s.restart()
	job := s.submit(t)
	s.place(t, job.GetUID(), otherName, 2)
	s.createCopy(t, job.GetUID(), "1")
	s.collect(t)
	expectDeleted(t, s.copy(t))
}

// finishedCopy creates a copy whose Dispatch says Finished. If says is true, the copy's own status says Complete too.
func (s *scene) finishedCopy(t *testing.T, says bool) *unstructured.Unstructured {
	t.Helper()
	job := s.submit(t)
	d := s.place(t, job.GetUID(), workerName, 1)
	copy := s.createCopy(t, job.GetUID(), "1")
	if says {
		s.completeCopy(t, workerName, copy)
	}
	s.finish(t, d)
	return copy
}

// completeCopy sets the condition Complete of a copy.
func (s *scene) completeCopy(t *testing.T, on v1alpha1.ClusterName, copy *unstructured.Unstructured) {
	t.Helper()
	copy.Object["status"] = map[string]any{"conditions": []any{map[string]any{
		"type": "Complete", "status": "True", "reason": "JobsCompleted", "message": "jobset completed successfully",
		"lastTransitionTime": s.Clock.Now().UTC().Format(time.RFC3339),
	}}}
	must(t, s.Worker(on).Admin.Status().Update(t.Context(), copy))
	s.settle(t)
}

// runIn creates a pod of the job on the worker, in this phase.
func (s *scene) runIn(t *testing.T, phase corev1.PodPhase) {
	t.Helper()
	s.run(t, workerName)
	w := s.Worker(workerName)
	pod := &corev1.Pod{}
	must(t, w.Admin.Get(t.Context(), client.ObjectKey{Namespace: s.key.Namespace, Name: "pod"}, pod))
	pod.Status.Phase = phase
	must(t, w.Admin.Status().Update(t.Context(), pod))
	eventually(t, "worker's cache of pods", func(g gomega.Gomega) {
		seen := &corev1.Pod{}
		g.Expect(w.Connection.Cache().Get(t.Context(), client.ObjectKeyFromObject(pod), seen)).To(gomega.Succeed())
		g.Expect(seen.Status.Phase).To(gomega.Equal(phase))
	})
}

// reporting is a second connection to the worker. It leaves counting to the agent, and has no pods.
func (s *scene) reporting(t *testing.T) *remote.Cluster {
	t.Helper()
	const name = v1alpha1.ClusterName("reporting")
	server := s.Worker(workerName)
	s.Fleet.Ensure(name, remote.Credentials{Config: server.Cluster.Config, Fingerprint: "admin"}, server.ID,
		remote.CapacityFrom(v1alpha1.CapacityFromReport))
	t.Cleanup(func() { s.Fleet.Remove(name) })
	connection, _ := s.Fleet.Get(name)
	stage.AwaitConnected(t, connection)
	return connection
}
