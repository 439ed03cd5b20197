// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/faults/links"
	"github.com/trainyard/trainyard/test/faults/world"
	"github.com/trainyard/trainyard/test/yard"
)

// scenario is one test with its jobs. At its end all faults end, the jobs are deleted, and what has happened is
// checked.
type scenario struct {
	*testing.T
	jobs []world.Job
	// broken are the workers that it may break.
	broken []string
	began  time.Time
	// overlaps are allowed, as for jobs whose failover is Immediate.
	overlaps bool
}

// alone begins a scenario that breaks what others need.
func alone(t *testing.T) *scenario { return begin(t, west, east) }

func begin(t *testing.T, broken ...string) *scenario {
	s := &scenario{T: t, broken: broken, began: time.Now()}
	t.Cleanup(s.finish)
	return s
}

// pool are the workers that are free to be broken.
var pool = struct {
	sync.Mutex
	free map[string]bool
	back *sync.Cond
}{free: map[string]bool{west: true, east: true}}

func init() { pool.back = sync.NewCond(&pool) }

// with begins a scenario that breaks one free worker. Other scenarios may break other workers at the same time.
func with(t *testing.T) (s *scenario, worker string) { return take(t, east, west) }

// patient begins a scenario with a worker whose agents do not stop copies unless the scenario is about that.
func patient(t *testing.T) (s *scenario, worker string) { return take(t, east) }

// fenced begins a scenario with a worker whose agents stop copies soon.
func fenced(t *testing.T) (s *scenario, worker string) { return take(t, west) }

// take waits until one of the workers is free.
func take(t *testing.T, workers ...string) (s *scenario, worker string) {
	t.Parallel()
	pool.Lock()
	defer pool.Unlock()
	for {
		if i := slices.IndexFunc(workers, func(name string) bool { return pool.free[name] }); i >= 0 {
			worker = workers[i]
			break
		}
		pool.back.Wait()
	}
	pool.free[worker] = false
	t.Cleanup(func() {
		pool.Lock()
		defer pool.Unlock()
		pool.free[worker] = true
		pool.back.Broadcast()
	})
	return begin(t, worker), worker
}

// finish ends the scenario.
func (s *scenario) finish() {
	s.Helper()
	// Without the time that it has waited for a worker.
	defer func() { s.Logf("took %v", time.Since(s.began).Round(100*time.Millisecond)) }()
	ctx := context.Background()
	for _, name := range s.broken {
		s.ready(name)
		// Jobs that are placed on a worker whose agent is silent are not fenced.
		s.workerSays(name, v1alpha1.WorkerClusterAgentReady, v1alpha1.ReasonAgentAnswers)
	}
	for _, job := range s.jobs {
		if !s.Failed() {
			s.eventually(func(g gomega.Gomega) { // It may just have been placed.
				_, _, err := w.Ended(ctx, job)
				g.Expect(client.IgnoreNotFound(err)).To(gomega.Succeed())
			})
		}
		object := &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: job.Key.Namespace, Name: job.Key.Name}}
		if err := client.IgnoreNotFound(w.Hub.Delete(ctx, object)); err != nil {
			s.Error(err)
		}
	}
	s.eventually(func(g gomega.Gomega) {
		left, err := w.Left(ctx, s.jobs...)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(left).To(gomega.BeEmpty(), "what is left of deleted jobs")
	})
	failed := s.Failed()
	for i, job := range s.jobs {
		faults := w.Faults(job)
		if s.overlaps {
			faults = withoutOverlaps(job, faults)
		}
		for _, fault := range faults {
			s.Errorf("TrainJob %s: %s", job.Key, fault)
		}
		if len(faults) > 0 || failed && i < described {
			s.Logf("TrainJob %s (%s):\n%s", job.Key, job.UID, w.Recorder.Describe(job.UID))
		}
	}
}

// described is how many jobs of a failed test are described although nothing was found wrong with them.
const described = 3

func withoutOverlaps(job world.Job, faults []string) []string {
	overlaps := map[string]bool{}
	for _, o := range w.Recorder.Overlaps(job.UID) {
		overlaps[o.String()] = true
	}
	var rest []string
	for _, fault := range faults {
		if !overlaps[fault] {
			rest = append(rest, fault)
		}
	}
	return rest
}

// eventually fails the test unless check succeeds in time.
func (s *scenario) eventually(check func(g gomega.Gomega)) {
	s.Helper()
	gomega.NewWithT(s).Eventually(check).WithTimeout(timeout).WithPolling(poll).Should(gomega.Succeed())
}

// change is something about a job that yard.Job does not say.
type change func(*trainer.TrainJob)

// on pins a job to workers.
func on(workers ...string) change {
	return func(job *trainer.TrainJob) {
		metav1.SetMetaDataAnnotation(&job.ObjectMeta, v1alpha1.AnnotationClusters, "worker in ("+strings.Join(workers, ",")+")")
	}
}

// failover chooses a job's policy.
func failover(f v1alpha1.Failover) change {
	return func(job *trainer.TrainJob) { metav1.SetMetaDataLabel(&job.ObjectMeta, world.LabelFailover, string(f)) }
}

// terminating lets a job's pods go on for a while when they are deleted.
func terminating(d string) change {
	return func(job *trainer.TrainJob) {
		pod := job.Spec.RuntimePatches[0].TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template
		pod.Metadata.Annotations[clusters.TerminateForAnnotation] = d
	}
}

// in puts a job into a namespace.
func in(namespace string) change {
	return func(job *trainer.TrainJob) { job.Namespace = namespace }
}

// submit creates a job on the hub, with a name that begins with the test's.
func (s *scenario) submit(runFor string, changes ...change) *trainer.TrainJob {
	s.Helper()
	name := strings.ToLower(strings.TrimPrefix(s.Name(), "TestFault"))
	name = strings.ReplaceAll(strings.ReplaceAll(name, "/", "-"), "_", "-")
	job := yard.Job{Name: fmt.Sprintf("%s-%d", name, len(s.jobs)), GPUs: 1, RunFor: runFor}.TrainJob()
	for _, change := range changes {
		change(job)
	}
	s.eventually(func(g gomega.Gomega) { // The hub's webhook may be away, as the hub's agent is when its API server was.
		err := w.Hub.Create(context.Background(), job)
		g.Expect(client.IgnoreAlreadyExists(err)).To(gomega.Succeed())
	})
	s.jobs = append(s.jobs, world.Job{Key: client.ObjectKeyFromObject(job), UID: job.UID})
	return job
}

// dispatchOf reads the Dispatch of a job.
func dispatchOf(g gomega.Gomega, job client.Object) *v1alpha1.Dispatch {
	d := &v1alpha1.Dispatch{}
	g.Expect(w.Hub.Get(context.Background(), client.ObjectKeyFromObject(job), d)).To(gomega.Succeed())
	return d
}

// notReady waits until a worker is refused, for one of the reasons.
func (s *scenario) notReady(worker string, reasons ...string) {
	s.Helper()
	s.eventually(func(g gomega.Gomega) {
		object := &v1alpha1.WorkerCluster{}
		g.Expect(w.Hub.Get(context.Background(), client.ObjectKey{Name: worker}, object)).To(gomega.Succeed())
		c := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.WorkerClusterReady)
		g.Expect(c).To(gomega.HaveValue(gomega.HaveField("Reason", gomega.BeElementOf(reasons))))
	})
}

// runs waits until a job has a running pod on a worker, in an attempt that the hub knows of.
func (s *scenario) runs(job *trainer.TrainJob, worker string, attempt int32) {
	s.Helper()
	s.eventually(func(g gomega.Gomega) {
		d := dispatchOf(g, job)
		g.Expect(d.Spec.Cluster).To(gomega.BeEquivalentTo(worker))
		g.Expect(d.Spec.Attempt).To(gomega.Equal(attempt))
		g.Expect(podsOf(g, worker, job)).To(gomega.ContainElement(gomega.HaveField("Status.Phase", corev1.PodRunning)))
	})
}

// settles waits until nothing is left to write about a running job: its Dispatch has said Running.
func (s *scenario) settles(job *trainer.TrainJob) {
	s.Helper()
	s.eventually(func(g gomega.Gomega) {
		d := dispatchOf(g, job)
		g.Expect(d.Status.Phase).To(gomega.Equal(v1alpha1.PhaseRunning))
		g.Expect(d.Status.Steps).To(gomega.ContainElement(gomega.HaveField("State", v1alpha1.StepRunning)))
	})
}

// podsOf are the pods of a job's copy.
func podsOf(g gomega.Gomega, worker string, job client.Object) []corev1.Pod {
	var pods corev1.PodList
	g.Expect(w.Workers[worker].List(context.Background(), &pods, client.InNamespace(job.GetNamespace()),
		client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: job.GetName()})).To(gomega.Succeed())
	return pods.Items
}

// ends waits until a job is Complete.
func (s *scenario) ends(jobs ...*trainer.TrainJob) {
	s.Helper()
	for _, job := range jobs {
		s.eventually(func(g gomega.Gomega) {
			g.Expect(w.Hub.Get(s.Context(), client.ObjectKeyFromObject(job), job)).To(gomega.Succeed())
			g.Expect(meta.IsStatusConditionTrue(job.Status.Conditions, trainer.TrainJobComplete)).To(gomega.BeTrue(), "%v", job.Status.Conditions)
		})
	}
}

// attempt fails the test if a job is in another attempt now.
func (s *scenario) attempt(job *trainer.TrainJob, want int32) {
	s.Helper()
	if d := dispatchOf(gomega.NewWithT(s), job); d.Spec.Attempt != want {
		s.Errorf("%s is in attempt %d, want %d:\n%s", job.Name, d.Spec.Attempt, want, w.Recorder.Describe(job.UID))
	}
}

// fault does something to the link to a cluster, which is undone when the test ends.
func (s *scenario) fault(cluster string, do func(*links.Link) error) {
	s.Helper()
	s.Cleanup(func() { s.heal(cluster) })
	if err := do(w.Links[cluster]); err != nil {
		s.Fatal(err)
	}
}

// heal ends the faults of the link to a cluster.
func (s *scenario) heal(cluster string) {
	s.Helper()
	if err := w.Links[cluster].Heal(); err != nil {
		s.Error(err)
	}
}

// workerSays waits until a condition of a WorkerCluster has a reason, and its message the words.
func (s *scenario) workerSays(worker, condition, reason string, words ...string) {
	s.Helper()
	s.eventually(func(g gomega.Gomega) {
		object := &v1alpha1.WorkerCluster{}
		g.Expect(w.Hub.Get(context.Background(), client.ObjectKey{Name: worker}, object)).To(gomega.Succeed())
		c := meta.FindStatusCondition(object.Status.Conditions, condition)
		g.Expect(c).NotTo(gomega.BeNil(), condition)
		g.Expect(c.Reason).To(gomega.Equal(reason), c.Message)
		for _, word := range words {
			g.Expect(c.Message).To(gomega.ContainSubstring(word))
		}
	})
}

// ready waits until a worker takes jobs.
func (s *scenario) ready(worker string) {
	s.Helper()
	s.workerSays(worker, v1alpha1.WorkerClusterReady, v1alpha1.ReasonConnected)
}

// dispatchSays waits until a condition of a job's Dispatch has a reason, and its message the words.
func (s *scenario) dispatchSays(job *trainer.TrainJob, condition, reason string, words ...string) {
	s.Helper()
	s.eventually(func(g gomega.Gomega) {
		c := meta.FindStatusCondition(dispatchOf(g, job).Status.Conditions, condition)
		g.Expect(c).NotTo(gomega.BeNil(), condition)
		g.Expect(c.Reason).To(gomega.Equal(reason), c.Message)
		for _, word := range words {
			g.Expect(c.Message).To(gomega.ContainSubstring(word))
		}
	})
}
