// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/faults/world"
	"github.com/trainyard/trainyard/test/yard"
)

// runners are jobs that run on while versions change, with what they have on their workers. They leave one node of east
// and three nodes of west free.
type runners struct {
	jobs     map[string]*trainer.TrainJob
	workers  map[string]string
	attempts map[string]int32
	objects  map[string]map[string]types.UID
}

func startRunners(t *testing.T, s *world.Scenario) *runners {
	t.Helper()
	r := &runners{
		jobs: map[string]*trainer.TrainJob{}, workers: map[string]string{}, attempts: map[string]int32{},
		objects: map[string]map[string]types.UID{},
	}
	for _, runner := range []struct {
		name, worker string
		failover     v1alpha1.Failover
	}{
		{"held", east, v1alpha1.FailoverHold}, {"fenced", east, v1alpha1.FailoverFenced}, {"immediate", west, v1alpha1.FailoverImmediate},
	} {
		name := "runs-" + runner.name
		r.jobs[name] = s.Submit(yard.Job{Name: name, GPUs: 8, RunFor: clusters.RunForever}, on(runner.worker), failover(runner.failover))
		r.workers[name] = runner.worker
	}
	for name, job := range r.jobs {
		r.attempts[name] = runs(t, job, r.workers[name])
		r.objects[name] = objectsOf(t, job, r.workers[name])
	}
	return r
}

// check fails the test if a runner was restarted, moved or stopped.
func (r *runners) check(t *testing.T) {
	t.Helper()
	for name, job := range r.jobs {
		if attempt := runs(t, job, r.workers[name]); attempt != r.attempts[name] {
			t.Errorf("%s is in attempt %d, and was in attempt %d", name, attempt, r.attempts[name])
		}
		check.Diff(t, r.objects[name], objectsOf(t, job, r.workers[name]),
			fmt.Sprintf("what %s has on %s", name, r.workers[name]))
		if intervals := w.Recorder.Intervals(job.UID); len(intervals) != 1 || !intervals[0].To.IsZero() {
			t.Errorf("%s did not run all the time:\n%s", name, w.Recorder.Describe(job.UID))
		}
	}
}

// cast has jobs in all other states, as one version leaves them to the next version.
type cast struct {
	// moves is being evicted from east, which is drained. Its pods do not end until the test lets them.
	moves   *trainer.TrainJob
	attempt int32 // of moves, on east
	// first and second wait, in this order, for two nodes of east. large waits for all nodes of west.
	first, second, large *trainer.TrainJob
	suspended            *trainer.TrainJob
	// ended are a job that is Complete and a job that has failed. Their copies stay for an hour.
	ended    []*trainer.TrainJob
	versions []map[string]string
	// dispatches are the UIDs of the Dispatches of the jobs that have not ended.
	dispatches map[string]types.UID
}

// assemble creates the jobs of a cast, and returns when each is in its state.
func assemble(t *testing.T, s *world.Scenario, name string) *cast {
	t.Helper()
	whole := func(job string, nodes int32, runFor string) yard.Job {
		return yard.Job{Name: name + "-" + job, Nodes: nodes, GPUs: 8, RunFor: runFor}
	}
	c := &cast{dispatches: map[string]types.UID{}}
	edit(t, west, func(spec *v1alpha1.WorkerClusterSpec) { spec.Unschedulable = true })
	c.moves = s.Submit(whole("moves", 1, clusters.RunForever), world.Terminating("1h"))
	c.attempt = runs(t, c.moves, east)
	edit(t, west, func(spec *v1alpha1.WorkerClusterSpec) { spec.Unschedulable = false })
	c.ended = []*trainer.TrainJob{
		s.Submit(yard.Job{Name: name + "-complete", RunFor: "1s"}),
		s.Submit(yard.Job{Name: name + "-failed", RunFor: "1s", Fail: "checkpoint is corrupt"}),
	}
	c.suspended = s.Submit(whole("suspended", 1, "1s"), on(west), suspended)
	c.first = s.Submit(whole("first", 2, "5s"), on(east))
	s.Ends(trainer.TrainJobComplete, c.ended[0])
	s.Ends(trainer.TrainJobFailed, c.ended[1])
	for _, job := range c.ended {
		settles(t, job)
		c.versions = append(c.versions, versionsOf(t, job))
	}
	// The age of a job counts in whole seconds.
	w.Eventually(t, func(g gomega.Gomega) {
		g.Expect(time.Since(c.first.CreationTimestamp.Time)).To(gomega.BeNumerically(">", 2*time.Second))
	})
	c.second = s.Submit(whole("second", 2, "1s"), on(east))
	c.large = s.Submit(whole("large", 4, "1s"), on(west))
	drain(t, east, true)
	w.Eventually(t, func(g gomega.Gomega) {
		d := w.DispatchOf(g, c.moves)
		g.Expect(d.Status.Phase).To(gomega.Equal(v1alpha1.PhaseEvicting))
		g.Expect(w.PodsOf(g, east, c.moves)).To(gomega.ConsistOf(gomega.HaveField("DeletionTimestamp", gomega.Not(gomega.BeNil()))))
	})
	for _, job := range []*trainer.TrainJob{c.first, c.second, c.large} {
		waits(t, job)
	}
	for _, job := range []*trainer.TrainJob{c.moves, c.first, c.second, c.large} {
		c.dispatches[job.Name] = w.DispatchOf(gomega.NewWithT(t), job).UID
	}
	return c
}

// check fails the test unless the jobs are as they were.
func (c *cast) check(t *testing.T) {
	t.Helper()
	for i, job := range c.ended {
		check.Diff(t, c.versions[i], versionsOf(t, job), fmt.Sprintf("%s, which has ended, was written", job.Name))
	}
	g := gomega.NewWithT(t)
	for _, job := range []*trainer.TrainJob{c.moves, c.first, c.second, c.large} {
		d := w.DispatchOf(g, job)
		check.Equal(t, c.dispatches[job.Name], d.UID, "%s has another Dispatch than before", job.Name)
		if job != c.moves && d.Spec.Cluster != "" {
			t.Errorf("%s was placed on %s without room", job.Name, d.Spec.Cluster)
		}
	}
	if d := w.DispatchOf(g, c.moves); d.Spec.Attempt != c.attempt || d.Spec.Cluster != east {
		t.Errorf("%s is in attempt %d on %q while its pods on %s run", c.moves.Name, d.Spec.Attempt, d.Spec.Cluster, east)
	}
	if intervals := w.Recorder.Intervals(c.suspended.UID); len(intervals) > 0 {
		t.Errorf("%s, which is suspended, has run:\n%s", c.suspended.Name, w.Recorder.Describe(c.suspended.UID))
	}
}

// goOn lets all jobs except large end. It fails the test unless each job ends as it would have without a change of
// version.
func (c *cast) goOn(t *testing.T, s *world.Scenario) {
	t.Helper()
	release(t.Context(), gomega.NewWithT(t), east, c.moves)
	runs(t, c.moves, west)
	drained := func(e v1alpha1.Attempt) bool {
		return e.Attempt == c.attempt && e.Outcome == v1alpha1.OutcomeDrained && string(e.Cluster) == east
	}
	if history := w.DispatchOf(gomega.NewWithT(t), c.moves).Status.History; !slices.ContainsFunc(history, drained) {
		t.Errorf("history of %s: %+v; want attempt %d on %s to be Drained", c.moves.Name, history, c.attempt, east)
	}
	drain(t, east, false)
	s.Ends(trainer.TrainJobComplete, c.first, c.second)
	first, second := w.Recorder.Intervals(c.first.UID), w.Recorder.Intervals(c.second.UID)
	if len(first) != 1 || len(second) != 1 || second[0].From.Before(first[0].From) {
		t.Errorf("the jobs that waited have not kept their places:\n%v\n%v", first, second)
	}
	w.Eventually(t, func(g gomega.Gomega) {
		g.Expect(w.Hub.Get(t.Context(), client.ObjectKeyFromObject(c.suspended), c.suspended)).To(gomega.Succeed())
		c.suspended.Spec.Suspend = nil
		g.Expect(w.Hub.Update(t.Context(), c.suspended)).To(gomega.Succeed())
	})
	s.Ends(trainer.TrainJobComplete, c.suspended)
	waits(t, c.large)
}

// leave deletes the jobs for which later casts would have to wait, and waits until they have left their worker.
func (c *cast) leave(t *testing.T) {
	t.Helper()
	for _, job := range []*trainer.TrainJob{c.moves, c.large} {
		check.Must(t, w.Hub.Delete(t.Context(), job))
	}
	w.Eventually(t, func(g gomega.Gomega) { // Its new pods do not end either.
		release(t.Context(), g, west, c.moves)
		err := w.Hub.Get(t.Context(), client.ObjectKeyFromObject(c.moves), &v1alpha1.Dispatch{})
		g.Expect(client.IgnoreNotFound(err)).To(gomega.Succeed())
		g.Expect(err).To(gomega.HaveOccurred(), "its Dispatch is still there")
	})
}

// release lets the pods of a job end when they are deleted.
func release(ctx context.Context, g gomega.Gomega, worker string, job client.Object) {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"0s"}}}`, clusters.TerminateForAnnotation)
	for _, pod := range w.PodsOf(g, worker, job) {
		err := w.Workers[worker].Patch(ctx, &pod, client.RawPatch(types.MergePatchType, patch))
		g.Expect(client.IgnoreNotFound(err)).To(gomega.Succeed())
	}
}

// drain begins or ends the drain of a worker.
func drain(t *testing.T, worker string, begin bool) {
	t.Helper()
	edit(t, worker, func(spec *v1alpha1.WorkerClusterSpec) { spec.Drain = begin })
}

func edit(t *testing.T, worker string, change func(*v1alpha1.WorkerClusterSpec)) {
	t.Helper()
	err := w.EditWorker(t.Context(), worker, func(object *v1alpha1.WorkerCluster) { change(&object.Spec) })
	check.Must(t, err)
}

// ready waits until a worker can be used, and its agent answers.
func ready(t *testing.T, worker string) {
	t.Helper()
	w.Eventually(t, func(g gomega.Gomega) {
		object := &v1alpha1.WorkerCluster{}
		g.Expect(w.Hub.Get(context.Background(), client.ObjectKey{Name: worker}, object)).To(gomega.Succeed())
		for _, kind := range []string{v1alpha1.WorkerClusterReady, v1alpha1.WorkerClusterAgentReady} {
			g.Expect(meta.IsStatusConditionTrue(object.Status.Conditions, kind)).To(gomega.BeTrue(), "%v", object.Status.Conditions)
		}
	})
}

var on, failover = world.On, world.Failover

func suspended(job *trainer.TrainJob) {
	suspend := true
	job.Spec.Suspend = &suspend
}

// runs waits until a job has as many running pods as nodes on a worker, and returns its attempt. A worker on a busy
// machine may have refused earlier attempts, whose copies were never created.
func runs(t *testing.T, job *trainer.TrainJob, worker string) (attempt int32) {
	t.Helper()
	w.Eventually(t, func(g gomega.Gomega) {
		d := w.DispatchOf(g, job)
		g.Expect(d.Spec.Cluster).To(gomega.BeEquivalentTo(worker))
		attempt = d.Spec.Attempt
		g.Expect(d.Status.Phase).To(gomega.Equal(v1alpha1.PhaseRunning))
		running := gomega.HaveField("Status.Phase", corev1.PodRunning)
		g.Expect(w.PodsOf(g, worker, job)).To(gomega.And(gomega.HaveLen(int(*job.Spec.Trainer.NumNodes)), gomega.HaveEach(running)))
	})
	return attempt
}

// settles waits until a job's Dispatch says that the job has ended, so that nothing is left to write.
func settles(t *testing.T, job *trainer.TrainJob) {
	t.Helper()
	w.Eventually(t, func(g gomega.Gomega) {
		g.Expect(w.DispatchOf(g, job).Status.Phase).To(gomega.Equal(v1alpha1.PhaseFinished))
	})
}

// waits waits until a job's Dispatch says why the job has no worker.
func waits(t *testing.T, job *trainer.TrainJob) {
	t.Helper()
	w.Eventually(t, func(g gomega.Gomega) {
		d := w.DispatchOf(g, job)
		g.Expect(d.Spec.Cluster).To(gomega.BeEmpty())
		g.Expect(meta.IsStatusConditionFalse(d.Status.Conditions, v1alpha1.DispatchPlaced)).To(gomega.BeTrue(), "%v", d.Status.Conditions)
	})
}

// objectsOf are the UIDs of what a running job has on a worker: copy, JobSet and pods. None of them survives a restart
// of the job.
func objectsOf(t *testing.T, job *trainer.TrainJob, worker string) map[string]types.UID {
	t.Helper()
	g := gomega.NewWithT(t)
	uids := map[string]types.UID{}
	for kind, object := range map[string]client.Object{"copy": &trainer.TrainJob{}, "JobSet": &jobsetv1alpha2.JobSet{}} {
		g.Expect(w.Workers[worker].Get(t.Context(), client.ObjectKeyFromObject(job), object)).To(gomega.Succeed())
		uids[kind] = object.GetUID()
	}
	for _, pod := range w.PodsOf(g, worker, job) {
		uids["Pod "+pod.Name] = pod.UID
	}
	return uids
}

// versionsOf are the versions of everything that a job that has ended has: nothing writes it any more.
func versionsOf(t *testing.T, job *trainer.TrainJob) map[string]string {
	t.Helper()
	g := gomega.NewWithT(t)
	d := w.DispatchOf(g, job)
	versions := map[string]string{"Dispatch": string(d.UID) + " " + d.ResourceVersion}
	key := client.ObjectKeyFromObject(job)
	for name, c := range map[string]client.Reader{"TrainJob": w.Hub, "copy": w.Workers[string(d.Spec.Cluster)]} {
		object := &trainer.TrainJob{}
		g.Expect(c.Get(t.Context(), key, object)).To(gomega.Succeed())
		versions[name] = string(object.UID) + " " + object.ResourceVersion
	}
	return versions
}
