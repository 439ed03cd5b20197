// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"flag"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/faults/links"
	"github.com/trainyard/trainyard/test/faults/world"
	"github.com/trainyard/trainyard/test/yard"
)

const (
	// Tests break west and east. Jobs can always go to south, the most expensive worker. If the hub is silent, the agents
	// of west stop copies soon, and the other agents stop them only after a minute.
	west, east, south = "west", "east", "south"

	poll = 50 * time.Millisecond
)

// timeout is for conditions that come in seconds on an idle machine.
var timeout time.Duration

func init() {
	flag.DurationVar(&timeout, "patience", 90*time.Second, "How long to wait for a condition that should come in seconds.")
}

// w is the world of all tests. They use jobs of their own.
var w *world.World

func TestMain(m *testing.M) { yard.Main(m, start) }

func start(ctx context.Context) (stop func() error, err error) {
	w, err = world.Start(ctx, world.Options{
		Timeout: timeout, Poll: poll,
		Dir: os.Getenv("FAULTS_DIR"), Workers: []string{west, east, south}, Agents: 2,
		FenceAfter: map[string]time.Duration{east: time.Minute, south: time.Minute},
		Progress:   yard.Print,
	})
	if err != nil {
		return nil, err
	}
	return w.Stop, nil
}

// scenario is one test with its jobs. At its end all faults end, the jobs are deleted, and what has happened is
// checked.
type scenario struct {
	*world.Scenario
	// broken are the workers that it may break.
	broken []string
	began  time.Time
}

// alone begins a scenario that breaks what others need.
func alone(t *testing.T) *scenario { return begin(t, west, east) }

func begin(t *testing.T, broken ...string) *scenario {
	s := &scenario{Scenario: &world.Scenario{T: t, World: w}, broken: broken, began: time.Now()}
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
	for _, job := range s.Jobs() {
		if !s.Failed() {
			s.Eventually(func(g gomega.Gomega) { // It may just have been placed.
				_, _, err := w.Ended(ctx, job)
				g.Expect(client.IgnoreNotFound(err)).To(gomega.Succeed())
			})
		}
	}
	s.Delete()
	s.Gone()
	s.Report()
}

var on, failover, terminating = world.On, world.Failover, world.Terminating

// in puts a job into a namespace.
func in(namespace string) world.Change {
	return func(job *trainer.TrainJob) { job.Namespace = namespace }
}

// submit creates a job on the hub, with a name that begins with the test's.
func (s *scenario) submit(runFor string, changes ...world.Change) *trainer.TrainJob {
	s.Helper()
	return s.Submit(yard.Job{GPUs: 1, RunFor: runFor}, changes...)
}

// notReady waits until a worker is refused, for one of the reasons.
func (s *scenario) notReady(worker string, reasons ...string) {
	s.Helper()
	s.Eventually(func(g gomega.Gomega) {
		object := &v1alpha1.WorkerCluster{}
		g.Expect(w.Hub.Get(context.Background(), client.ObjectKey{Name: worker}, object)).To(gomega.Succeed())
		c := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.WorkerClusterReady)
		g.Expect(c).To(gomega.HaveValue(gomega.HaveField("Reason", gomega.BeElementOf(reasons))))
	})
}

// settles waits until nothing is left to write about a running job: its Dispatch has said Running.
func (s *scenario) settles(job *trainer.TrainJob) {
	s.Helper()
	s.Eventually(func(g gomega.Gomega) {
		d := w.DispatchOf(g, job)
		g.Expect(d.Status.Phase).To(gomega.Equal(v1alpha1.PhaseRunning))
		g.Expect(d.Status.Steps).To(gomega.ContainElement(gomega.HaveField("State", v1alpha1.StepRunning)))
	})
}

// ends waits until jobs are Complete.
func (s *scenario) ends(jobs ...*trainer.TrainJob) {
	s.Helper()
	s.Ends(trainer.TrainJobComplete, jobs...)
}

// fault does something to the link to a cluster, which is undone when the test ends.
func (s *scenario) fault(cluster string, do func(*links.Link) error) {
	s.Helper()
	s.Cleanup(func() { s.heal(cluster) })
	check.Must(s, do(w.Links[cluster]))
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
	s.Eventually(func(g gomega.Gomega) {
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
	s.Eventually(func(g gomega.Gomega) {
		c := meta.FindStatusCondition(w.DispatchOf(g, job).Status.Conditions, condition)
		g.Expect(c).NotTo(gomega.BeNil(), condition)
		g.Expect(c.Reason).To(gomega.Equal(reason), c.Message)
		for _, word := range words {
			g.Expect(c.Message).To(gomega.ContainSubstring(word))
		}
	})
}
