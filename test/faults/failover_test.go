// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/faults/history"
	"github.com/trainyard/trainyard/test/faults/links"
	"github.com/trainyard/trainyard/test/faults/world"
)

// moves waits until a job runs elsewhere in its second attempt, because its worker is lost.
func (s *scenario) moves(job *trainer.TrainJob, from string) {
	s.Helper()
	s.historyHas(job, 1, from, v1alpha1.OutcomeWorkerLost)
	s.Runs(job, south, 2)
}

// cleared waits until a worker that is back has nothing left of a moved job.
func (s *scenario) cleared(worker string, job *trainer.TrainJob) {
	s.Helper()
	s.gone(w.Workers[worker], job, &trainer.TrainJob{})
	s.Eventually(func(g gomega.Gomega) { g.Expect(w.PodsOf(g, worker, job)).To(gomega.BeEmpty()) })
}

// stopped waits until a copy can no longer run, and returns its interval.
func (s *scenario) stopped(job *trainer.TrainJob) (interval history.Interval) {
	s.Helper()
	s.Eventually(func(g gomega.Gomega) {
		intervals := w.Recorder.Intervals(job.UID)
		g.Expect(intervals).NotTo(gomega.BeEmpty())
		interval = intervals[0]
		g.Expect(interval.To.IsZero()).To(gomega.BeFalse(), "it can run: %v", intervals)
	})
	return interval
}

// stoppedInTime waits until a copy can no longer run. That has to be before the hub counts it as stopped. The last
// challenge that the hub answered is from before the cut.
func (s *scenario) stoppedInTime(job *trainer.TrainJob, cut time.Time, fenceAfter time.Duration) {
	s.Helper()
	took := s.stopped(job).To.Sub(cut)
	if limit := fenceAfter + world.FenceMargin; took > limit {
		s.Errorf("the copy could run for %v after the last sign of life of the hub, want less than %v", took, limit)
	}
	s.Logf("stopped %v after the cut", took)
}

// goesOn waits until the process of a job's second attempt knows where it trained before.
func (s *scenario) goesOn(job *trainer.TrainJob, from string) {
	s.Helper()
	s.Eventually(func(g gomega.Gomega) {
		pods := w.PodsOf(g, south, job)
		g.Expect(pods).NotTo(gomega.BeEmpty())
		g.Expect(pods[0].Spec.Containers[0].Env).To(gomega.ContainElements(
			corev1.EnvVar{Name: trainjobs.EnvJobUID, Value: string(job.UID)},
			corev1.EnvVar{Name: trainjobs.EnvAttempt, Value: "2"},
			corev1.EnvVar{Name: trainjobs.EnvPreviousCluster, Value: from},
		))
	})
}

// The network between hub and worker is cut. The agent stops the job in time. The hub cannot see that, and places the
// job again after the job must have stopped: the next attempt knows where the lost one trained. When the worker is back,
// the copy is deleted.
func TestFaultFenced(t *testing.T) {
	s, worker := fenced(t)
	job := s.submit(clusters.RunForever, on(worker, south), terminating("1s"))
	s.Runs(job, worker, 1)
	s.Eventually(func(g gomega.Gomega) { g.Expect(w.DispatchOf(g, job).Status.FirstRunningTime).NotTo(gomega.BeNil()) })
	s.fault(worker, (*links.Link).Blackhole)
	s.stoppedInTime(job, time.Now(), world.FenceAfter)
	s.moves(job, worker)
	s.goesOn(job, worker)
	s.heal(worker)
	s.ready(worker)
	s.cleared(worker, job)
	s.ends(s.submit("1s", on(worker)))
	s.Attempt(job, 2)
}

// The pods of a job take long to end. So the agent stops it earlier, and the hub waits beyond the grace period.
func TestFaultFencedSlowPods(t *testing.T) {
	const fenceAfter = 14 * time.Second // Longer than the grace period, and half of it and the time of the pods are too.
	s, worker := fenced(t)
	s.editSpec(worker, func(spec *v1alpha1.WorkerClusterSpec) {
		spec.Failover.FenceAfter = &metav1.Duration{Duration: fenceAfter}
	})
	s.Eventually(func(g gomega.Gomega) {
		g.Expect(s.leaseOf(worker).Spec.FenceAfter.Duration).To(gomega.Equal(fenceAfter))
	})
	job := s.submit(clusters.RunForever, on(worker, south), terminating("5s"))
	s.Runs(job, worker, 1)
	s.fault(worker, (*links.Link).Blackhole)
	s.stoppedInTime(job, time.Now(), fenceAfter)
	s.moves(job, worker)
}

// The network comes back after the agent has stopped the job, and before the hub gives it up: the job stays there.
func TestFaultFencedAndBack(t *testing.T) {
	s, worker := fenced(t)
	job := s.submit("8s", on(worker, south))
	s.Runs(job, worker, 1)
	s.fault(worker, (*links.Link).Blackhole)
	s.stopped(job)
	s.heal(worker)
	s.ends(job)
	s.Attempt(job, 1)
}

// A job with failover Hold stays on its worker, however long the worker is cut off. The agent does not stop it.
func TestFaultHold(t *testing.T) {
	s, worker := fenced(t)
	held := s.submit(clusters.RunForever, on(worker, south), failover(v1alpha1.FailoverHold))
	fenced := s.submit(clusters.RunForever, on(worker, south))
	s.Runs(held, worker, 1)
	s.Runs(fenced, worker, 1)
	s.fault(worker, (*links.Link).Blackhole)
	s.held(held, worker)
	s.moves(fenced, worker) // So much time has passed.
	s.Attempt(held, 1)
	s.heal(worker)
	s.ready(worker)
	s.cleared(worker, fenced)
	s.dispatchLost(held, false)
	if intervals := w.Recorder.Intervals(held.UID); len(intervals) != 1 || !intervals[0].To.IsZero() {
		t.Errorf("the job was stopped: %v", intervals)
	}
}

// dispatchLost waits until the Dispatch says that the worker is lost, or does not say so any more.
func (s *scenario) dispatchLost(job *trainer.TrainJob, lost bool) {
	s.Helper()
	s.Eventually(func(g gomega.Gomega) {
		d := w.DispatchOf(g, job)
		g.Expect(d.Status.Phase == v1alpha1.PhaseWorkerLost).To(gomega.Equal(lost), "%+v", d.Status.Conditions)
	})
}

// A job with failover Immediate is placed again at once. It runs twice until its worker is back, and then once.
func TestFaultImmediate(t *testing.T) {
	s, worker := patient(t)
	s.Overlaps = true
	job := s.submit(clusters.RunForever, on(worker, south), failover(v1alpha1.FailoverImmediate))
	s.Runs(job, worker, 1)
	s.fault(worker, (*links.Link).Blackhole)
	s.moves(job, worker)
	s.heal(worker)
	s.ready(worker)
	s.cleared(worker, job)
	s.Attempt(job, 2)
}

// The worker refuses connections. Perhaps only its API server is down, and its agent stops nothing. A Fenced job stays.
func TestFaultRefusedIsNotSilent(t *testing.T) {
	s, worker := fenced(t)
	job := s.submit(clusters.RunForever, on(worker, south))
	s.Runs(job, worker, 1)
	s.fault(worker, (*links.Link).Blackhole)
	s.workerSays(worker, v1alpha1.WorkerClusterReady, v1alpha1.ReasonUnreachable)
	w.Links[worker].Refuse() // Even if it was silent before.
	s.answered(job, worker)
	check.Must(t, w.Links[worker].Heal())
	if err := w.Links[worker].Blackhole(); err != nil { // And if it is silent after.
		t.Fatal(err)
	}
	s.ends(s.submit("6s", on(south)))
	s.Attempt(job, 1)
	s.heal(worker)
	s.dispatchLost(job, false)
	// The copy was stopped, and is resumed. If it took long to stop, the agent has deleted it, and it is created again on
	// the same worker.
	s.Eventually(func(g gomega.Gomega) {
		g.Expect(w.PodsOf(g, worker, job)).To(gomega.ContainElement(gomega.HaveField("Status.Phase", corev1.PodRunning)))
	})
}

// restart restarts the manager with other arguments, until the test ends.
func (s *scenario) restart(more ...string) {
	s.Helper()
	again := func(more ...string) {
		before := s.leads()
		if err := errors.Join(w.Managers.Away(), w.Managers.Back(more...)); err != nil {
			s.Error(err)
		}
		s.anotherLeads(before)
	}
	again(more...)
	s.Cleanup(func() { again() })
	for _, worker := range []string{west, east, south} {
		s.ready(worker)
	}
	s.answersAgain(west)
}

// answersAgain waits until the manager knows that a worker's agent lives: the manager has answered two challenges, and
// has seen the second challenge appear.
func (s *scenario) answersAgain(worker string) {
	s.Helper()
	for range 2 {
		before := s.leaseOf(worker).Spec.Answer
		s.Eventually(func(g gomega.Gomega) { g.Expect(s.leaseOf(worker).Spec.Answer).NotTo(gomega.Equal(before)) })
	}
	s.workerSays(worker, v1alpha1.WorkerClusterAgentReady, v1alpha1.ReasonAgentAnswers)
}

// The agent that fences dies while the network is cut. The other agent stops the job, within the manager's margin.
func TestFaultAgentDiesWhileCutOff(t *testing.T) {
	s := alone(t)
	s.restart("--fence-margin=10s")
	job := s.submit(clusters.RunForever, on(west, south))
	s.Runs(job, west, 1)
	s.fault(west, (*links.Link).Blackhole)
	if err := w.Agents[west][0].Process().Kill(); err != nil { // It was the first.
		t.Fatal(err)
	}
	s.moves(job, west)
	s.heal(west)
	s.ready(west)
	s.cleared(west, job)
}

// All agents of a worker are dead when it is cut off. Nobody stops its jobs, so the jobs stay.
func TestFaultNoAgent(t *testing.T) {
	s, worker := fenced(t)
	job := s.submit(clusters.RunForever, on(worker, south))
	s.Runs(job, worker, 1)
	for _, agent := range w.Agents[worker] {
		check.Must(t, agent.Down())
	}
	t.Cleanup(func() {
		for _, agent := range w.Agents[worker] {
			check.Must(t, agent.Up(context.Background()))
		}
		s.workerSays(worker, v1alpha1.WorkerClusterAgentReady, v1alpha1.ReasonAgentAnswers)
	})
	s.workerSays(worker, v1alpha1.WorkerClusterAgentReady, v1alpha1.ReasonAgentSilent)
	s.fault(worker, (*links.Link).Blackhole)
	s.held(job, worker)
	s.ends(s.submit("8s", on(south))) // Long after the job would have been placed again.
	s.Attempt(job, 1)
	s.heal(worker)
	s.dispatchLost(job, false)
}

// If the manager is away for less than the fence time, nothing is stopped. If it is away for longer, all Fenced jobs
// are stopped, and continue in the same attempt when the manager is back.
func TestFaultManagerAway(t *testing.T) {
	s := alone(t)
	short, long := s.submit(clusters.RunForever, on(east)), s.submit(clusters.RunForever, on(west))
	s.Runs(short, east, 1)
	s.Runs(long, west, 1)
	check.Must(t, w.Managers.Away())
	s.stopped(long)
	check.Must(t, w.Managers.Back())
	s.Eventually(func(g gomega.Gomega) {
		g.Expect(w.Recorder.CanRun(long.UID)).To(gomega.BeTrue(), "it is not resumed")
		g.Expect(w.PodsOf(g, west, long)).To(gomega.ContainElement(gomega.HaveField("Status.Phase", corev1.PodRunning)))
	})
	s.Attempt(long, 1)
	s.Attempt(short, 1)
	if intervals := w.Recorder.Intervals(short.UID); len(intervals) != 1 || !intervals[0].To.IsZero() {
		t.Errorf("a job was stopped although the hub was away for less than its worker's fence time: %v", intervals)
	}
}

// Two of three workers are lost at once: the hub seems to be cut off, and no job moves. When one worker is back, the
// jobs of the other worker move.
func TestFaultManyWorkersLost(t *testing.T) {
	s := alone(t)
	s.restart("--failover-pause-at=0.5")
	jobs := map[string]*trainer.TrainJob{west: s.submit(clusters.RunForever, on(west, south)), east: s.submit(clusters.RunForever, on(east, south))}
	for worker, job := range jobs {
		s.Runs(job, worker, 1)
	}
	for worker := range jobs {
		s.fault(worker, (*links.Link).Blackhole)
	}
	for worker, job := range jobs {
		s.workerSays(worker, v1alpha1.WorkerClusterFailoverPaused, v1alpha1.ReasonManyWorkersLost)
		s.dispatchSays(job, v1alpha1.DispatchWorkerLost, v1alpha1.ReasonFailoverPaused, worker)
	}
	s.ends(s.submit("6s", on(south))) // Until long after the jobs would have been placed again.
	s.Attempt(jobs[west], 1)
	s.Attempt(jobs[east], 1)
	s.heal(east)
	s.ready(east)
	s.moves(jobs[west], west)
	s.Attempt(jobs[east], 1)
	s.Runs(jobs[east], east, 1)
}

// An admin says that a worker that is away will never return. Its jobs are placed again at once, and deletions no
// longer wait. When the worker returns all the same, the copies of these jobs are deleted.
func TestFaultForgotten(t *testing.T) {
	s, worker := patient(t)
	s.Overlaps = true // The admin has said that nothing runs there.
	moves := s.submit(clusters.RunForever, on(worker, south), failover(v1alpha1.FailoverHold))
	deleted := s.submit(clusters.RunForever, on(worker), failover(v1alpha1.FailoverHold))
	s.Runs(moves, worker, 1)
	s.Runs(deleted, worker, 1)
	s.fault(worker, func(l *links.Link) error { l.Refuse(); return nil })
	s.held(moves, worker)
	check.Must(t, w.Hub.Delete(t.Context(), deleted.DeepCopy()))
	forget := func(id string) {
		err := w.EditWorker(context.Background(), worker, func(object *v1alpha1.WorkerCluster) {
			delete(object.Annotations, v1alpha1.AnnotationForget)
			if id != "" {
				metav1.SetMetaDataAnnotation(&object.ObjectMeta, v1alpha1.AnnotationForget, id)
			}
		})
		check.Must(t, err)
	}
	forget(string(clusterID(t, w.Workers[worker])))
	t.Cleanup(func() { forget("") })
	s.moves(moves, worker)
	s.gone(w.Hub, deleted, &v1alpha1.Dispatch{})
	check.Equal(t, nil, w.Hub.Get(t.Context(), client.ObjectKey{Name: string(deleted.UID)}, &v1alpha1.Tombstone{}),
		"nothing remembers that there is something to delete")
	s.heal(worker)
	s.ready(worker)
	s.cleared(worker, moves)
	s.cleared(worker, deleted)
	s.Attempt(moves, 2)
}

// A job is deleted, and its worker is away for longer than deletions wait: a Tombstone names the copy. Meanwhile a new
// job of the same name is created. When the worker is back, the old copy is deleted first.
func TestFaultTombstone(t *testing.T) {
	s, worker, job := awayWithAJob(t)
	check.Must(t, w.Hub.Delete(t.Context(), job.DeepCopy()))
	s.dispatchSays(job, v1alpha1.DispatchWorkerLost, v1alpha1.ReasonDeletionPending, worker)
	s.gone(w.Hub, job, &v1alpha1.Dispatch{})
	tombstone := &v1alpha1.Tombstone{}
	check.Must(t, w.Hub.Get(t.Context(), client.ObjectKey{Name: string(job.UID)}, tombstone))
	again := s.submit("1s", on(worker), func(next *trainer.TrainJob) { next.Name = job.Name })
	s.heal(worker)
	s.gone(w.Hub, tombstone, tombstone)
	s.ends(again)
	check.Equal(t, string(again.UID), copyOf(gomega.NewWithT(t), worker, again).Labels[v1alpha1.LabelOriginUID],
		"the copy on the worker is of TrainJob: want that of the new one")
}

// gracePeriod changes a worker's grace period until the test ends.
func (s *scenario) gracePeriod(worker string, d time.Duration) {
	s.Helper()
	set := func(d time.Duration) {
		err := w.EditWorker(context.Background(), worker, func(object *v1alpha1.WorkerCluster) {
			object.Spec.Failover.GracePeriod = &metav1.Duration{Duration: d}
		})
		if err != nil {
			s.Error(err)
		}
	}
	set(d)
	s.Cleanup(func() { set(world.GracePeriod) })
}

// A worker is away for less than its grace period. Nothing is written to its jobs.
func TestFaultShortLoss(t *testing.T) {
	s, worker := patient(t)
	s.gracePeriod(worker, time.Hour)
	jobs := []*trainer.TrainJob{s.submit(clusters.RunForever, on(worker)), s.submit(clusters.RunForever, on(worker, south))}
	for _, job := range jobs {
		s.settles(job)
	}
	before := []string{s.versions(jobs[0]), s.versions(jobs[1])}
	s.fault(worker, (*links.Link).Blackhole)
	s.workerSays(worker, v1alpha1.WorkerClusterReady, v1alpha1.ReasonUnreachable)
	s.ends(s.submit("1s", on(worker, south)))
	s.heal(worker)
	s.ready(worker)
	s.ends(s.submit("1s", on(worker)))
	for i, job := range jobs {
		if after := s.versions(job); after != before[i] {
			t.Errorf("writes for a job whose worker was away for a moment, from %s to %s:\n%s", before[i], after, w.Recorder.Describe(job.UID))
		}
	}
}

// versions are the versions of a job and of its Dispatch on the API server.
func (s *scenario) versions(job *trainer.TrainJob) string {
	s.Helper()
	g := gomega.NewWithT(s)
	current := &trainer.TrainJob{}
	g.Expect(w.Hub.Get(context.Background(), client.ObjectKeyFromObject(job), current)).To(gomega.Succeed())
	return fmt.Sprintf("TrainJob %s, Dispatch %s", current.ResourceVersion, w.DispatchOf(g, job).ResourceVersion)
}

// editSpec changes the spec of a WorkerCluster until the test ends.
func (s *scenario) editSpec(worker string, change func(*v1alpha1.WorkerClusterSpec)) {
	s.Helper()
	var before v1alpha1.WorkerClusterSpec
	edit := func(change func(*v1alpha1.WorkerClusterSpec)) {
		err := w.EditWorker(context.Background(), worker, func(object *v1alpha1.WorkerCluster) {
			before = *object.Spec.DeepCopy()
			change(&object.Spec)
		})
		if err != nil {
			s.Error(err)
		}
	}
	edit(change)
	original := before
	s.Cleanup(func() { edit(func(spec *v1alpha1.WorkerClusterSpec) { *spec = original }) })
}

// A worker is cordoned: its jobs stay, and it gets no new jobs.
func TestFaultCordon(t *testing.T) {
	s, worker := with(t)
	stays := s.submit("4s", on(worker, south))
	s.Runs(stays, worker, 1)
	s.editSpec(worker, func(spec *v1alpha1.WorkerClusterSpec) { spec.Unschedulable = true })
	elsewhere := s.submit("1s", on(worker, south))
	s.ends(elsewhere, stays)
	s.Attempt(stays, 1)
	if d := w.DispatchOf(gomega.NewWithT(t), elsewhere); d.Spec.Cluster != south {
		t.Errorf("placed on %s, which is cordoned", d.Spec.Cluster)
	}
}

// A worker is drained: its jobs move, one at a time. A job that fits nowhere else stays and says so.
func TestFaultDrain(t *testing.T) {
	s, worker := with(t)
	jobs := []*trainer.TrainJob{
		s.submit(clusters.RunForever, on(worker, south), terminating("1s")),
		s.submit(clusters.RunForever, on(worker, south), terminating("1s")),
	}
	pinned := s.submit(clusters.RunForever, on(worker))
	for _, job := range append(jobs, pinned) {
		s.Runs(job, worker, 1)
	}
	s.editSpec(worker, func(spec *v1alpha1.WorkerClusterSpec) { spec.Drain = true })
	for _, job := range jobs {
		s.historyHas(job, 1, worker, v1alpha1.OutcomeDrained)
		s.Runs(job, south, 2)
	}
	s.Eventually(func(g gomega.Gomega) {
		c := meta.FindStatusCondition(w.DispatchOf(g, pinned).Status.Conditions, v1alpha1.DispatchEvicting)
		g.Expect(c).To(gomega.HaveValue(gomega.HaveField("Reason", v1alpha1.ReasonNoRoomElsewhere)))
	})
	s.Attempt(pinned, 1)
	first, second := w.Recorder.Intervals(jobs[0].UID), w.Recorder.Intervals(jobs[1].UID)
	if first[0].To.After(second[0].To) {
		first, second = second, first
	}
	if second[0].To.Before(first[1].From) {
		t.Errorf("two jobs were on the move at a time: %v and %v", first, second)
	}
}
