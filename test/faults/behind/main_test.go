// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package behind

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/faults/history"
	"github.com/trainyard/trainyard/test/faults/world"
	"github.com/trainyard/trainyard/test/kueue"
	"github.com/trainyard/trainyard/test/yard"
)

const (
	// west has a Kueue. south has none: jobs go there when they leave west.
	west, south = "west", "south"
	// queue is the LocalQueue of west, and its ClusterQueue.
	queue = "main"
	// fenceAfter of west gives an agent on a busy machine the time to end pods without deleting their copy, and a Kueue there
	// the time to resume the copy before.
	fenceAfter = 4 * world.FenceAfter

	poll = 50 * time.Millisecond
)

// timeout is for conditions that come in seconds on an idle machine.
var timeout time.Duration

func init() {
	flag.DurationVar(&timeout, "patience", 3*time.Minute, "How long to wait for a condition that should come in seconds.")
}

var (
	w *world.World
	// behind is the Kueue of west.
	behind *kueue.Manager
)

func TestMain(m *testing.M) { yard.Main(m, start) }

func start(ctx context.Context) (stop func() error, err error) {
	w, err = world.Start(ctx, world.Options{
		Timeout: timeout, Poll: poll,
		Dir: os.Getenv("FAULTS_DIR"), Workers: []string{west, south},
		FenceAfter: map[string]time.Duration{west: fenceAfter, south: time.Minute},
		// No test ends the manager, which would end by itself if it could not renew its lease on a busy machine.
		ManagerArgs: []string{"--leader-elect=false"}, Progress: yard.Print,
	})
	if err != nil {
		return nil, err
	}
	yard.Print("starting Kueue on %s", west)
	return w.Stop, startKueue(ctx)
}

// integrations are the integrations whose kinds a worker has.
func integrations() map[string]any {
	return map[string]any{"integrations": map[string]any{
		"frameworks": []any{"batch/job", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob"},
	}}
}

// startKueue starts the Kueue of west with one queue, which is never full.
func startKueue(ctx context.Context) error {
	behind = kueue.New(w.Yard.Workers[west], w.Workers[west], integrations())
	if err := errors.Join(behind.Install(ctx), behind.Start(ctx)); err != nil {
		return err
	}
	cluster, local := kueue.Object("ClusterQueue", "", queue), kueue.Object("LocalQueue", metav1.NamespaceDefault, queue)
	cluster.Object["spec"] = map[string]any{
		"namespaceSelector": map[string]any{},
		"resourceGroups": []any{map[string]any{
			"coveredResources": []any{"cpu", "nvidia.com/gpu"},
			"flavors": []any{map[string]any{"name": "default", "resources": []any{
				map[string]any{"name": "cpu", "nominalQuota": "1000"},
				map[string]any{"name": "nvidia.com/gpu", "nominalQuota": "1000"},
			}}},
		}},
	}
	local.Object["spec"] = map[string]any{"clusterQueue": queue}
	if err := behind.Apply(ctx, kueue.Object("ResourceFlavor", "", "default"), cluster, local); err != nil {
		return err
	}
	return behind.Active(ctx, "ClusterQueue")
}

// scenario is one test with its jobs. At its end all faults end, the jobs are deleted, and what has happened is
// checked.
type scenario struct{ *world.Scenario }

func begin(t *testing.T) *scenario {
	s := &scenario{&world.Scenario{T: t, World: w}}
	began := time.Now()
	t.Cleanup(func() {
		s.heal()
		s.Delete()
		s.Gone()
		s.Report()
		s.Logf("took %v", time.Since(began).Round(100*time.Millisecond))
	})
	return s
}

// submit creates a job that runs for ever, in the queue of west.
func (s *scenario) submit() *trainer.TrainJob { return s.submitTo(queue) }

// submitTo creates a job in a queue, or in none.
func (s *scenario) submitTo(queue string) *trainer.TrainJob {
	s.Helper()
	queued := func(job *trainer.TrainJob) {
		if queue != "" {
			metav1.SetMetaDataLabel(&job.ObjectMeta, kueue.LabelQueue, queue)
		}
	}
	job := yard.Job{GPUs: 1, RunFor: clusters.RunForever}
	return s.Submit(job, world.On(west, south), world.Terminating("1s"), queued)
}

// copyOf is the copy on west.
func copyOf(g gomega.Gomega, job client.Object) *trainer.TrainJob {
	copied := &trainer.TrainJob{}
	g.Expect(w.Workers[west].Get(context.Background(), client.ObjectKeyFromObject(job), copied)).To(gomega.Succeed())
	return copied
}

// workloadOf is the Workload of the copy on west.
func workloadOf(g gomega.Gomega, job client.Object) *unstructured.Unstructured {
	workloads := &unstructured.UnstructuredList{}
	workloads.SetAPIVersion(kueue.APIVersion)
	workloads.SetKind("WorkloadList")
	copied := copyOf(g, job)
	err := w.Workers[west].List(context.Background(), workloads, client.InNamespace(job.GetNamespace()))
	g.Expect(err).NotTo(gomega.HaveOccurred())
	for i := range workloads.Items {
		if metav1.IsControlledBy(&workloads.Items[i], copied) {
			return &workloads.Items[i]
		}
	}
	g.Expect(workloads.Items).To(gomega.BeNil(), "none of these Workloads is the copy's")
	return nil
}

// isQueued waits until the Dispatch says that the queue of west has the job.
func (s *scenario) isQueued(job *trainer.TrainJob) {
	s.Helper()
	s.Eventually(func(g gomega.Gomega) {
		d := w.DispatchOf(g, job)
		g.Expect(d.Spec.Cluster).To(gomega.BeEquivalentTo(west))
		g.Expect(d.Status.Phase).To(gomega.Equal(v1alpha1.PhaseQueued))
		g.Expect(d.Status.Reason).To(gomega.BeElementOf(
			v1alpha1.ReasonWaitingForQuota, v1alpha1.ReasonInadmissible, v1alpha1.ReasonEvictedByKueue))
		g.Expect(copyOf(g, job).Spec.Suspend).To(gomega.HaveValue(gomega.BeTrue()))
		g.Expect(w.PodsOf(g, west, job)).To(gomega.BeEmpty())
	})
}

// admitted waits until Kueue has admitted the copy.
func (s *scenario) admitted(job *trainer.TrainJob) {
	s.Helper()
	s.Eventually(func(g gomega.Gomega) {
		workload := workloadOf(g, job)
		g.Expect(kueue.IsTrue(workload, "Admitted")).To(gomega.BeTrue(), "%v", workload.Object["status"])
	})
}

// stopPolicy stops the queue of west, or lets it go on with the policy None.
func (s *scenario) stopPolicy(policy string) {
	s.Helper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"stopPolicy":%q}}`, policy))
	s.Eventually(func(g gomega.Gomega) {
		err := w.Workers[west].Patch(context.Background(), kueue.Object("ClusterQueue", "", queue), patch)
		g.Expect(err).NotTo(gomega.HaveOccurred())
	})
}

// hold stops the queue of west for new jobs, until the test ends.
func (s *scenario) hold() {
	s.Helper()
	s.stopPolicy("Hold")
	s.Cleanup(func() { s.stopPolicy("None") })
}

// cut cuts west off, and returns when.
func (s *scenario) cut() time.Time {
	s.Helper()
	s.Must(w.Links[west].Blackhole())
	return time.Now()
}

// heal connects west again, and waits until it takes jobs.
func (s *scenario) heal() {
	s.Helper()
	s.Must(w.Links[west].Heal())
	s.Eventually(func(g gomega.Gomega) {
		object := &v1alpha1.WorkerCluster{}
		g.Expect(w.Hub.Get(context.Background(), client.ObjectKey{Name: west}, object)).To(gomega.Succeed())
		g.Expect(meta.IsStatusConditionTrue(object.Status.Conditions, v1alpha1.WorkerClusterReady)).To(gomega.BeTrue())
	})
}

// stoppedInTime waits until the copy can no longer run. That has to be before the hub counts it as stopped.
func (s *scenario) stoppedInTime(job *trainer.TrainJob, cut time.Time) {
	s.Helper()
	var first history.Interval
	s.Eventually(func(g gomega.Gomega) {
		intervals := w.Recorder.Intervals(job.UID)
		g.Expect(intervals).NotTo(gomega.BeEmpty())
		first = intervals[0]
		g.Expect(first.To.IsZero()).To(gomega.BeFalse(), "it can run: %v", intervals)
	})
	took := first.To.Sub(cut)
	if limit := fenceAfter + world.FenceMargin; took > limit {
		s.Errorf("the copy could run for %v after the last sign of life of the hub, want less than %v", took, limit)
	}
	s.Logf("stopped %v after the cut", took)
}

// fenced waits until the agent has marked the copy as stopped.
func (s *scenario) fenced(job *trainer.TrainJob) {
	s.Helper()
	s.Eventually(func(g gomega.Gomega) {
		g.Expect(copyOf(g, job).Annotations).To(gomega.HaveKey(v1alpha1.AnnotationFenced))
	})
}

// refusal is the API server's answer to a resumption of a fenced copy.
const refusal = "stays suspended until the hub removes the annotation"

// refusals counts how often Kueue has tried in vain to start the copy of a job.
func (s *scenario) refusals(job *trainer.TrainJob) (count int) {
	s.Helper()
	log, err := os.ReadFile(behind.Process.LogPath)
	s.Must(err)
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, refusal) && strings.Contains(line, `"`+job.Name+`"`) {
			count++
		}
	}
	return count
}

// triesToStart waits until Kueue has tried again to start the copy, in vain.
func (s *scenario) triesToStart(job *trainer.TrainJob) {
	s.Helper()
	before := s.refusals(job)
	s.Eventually(func(g gomega.Gomega) { g.Expect(s.refusals(job)).To(gomega.BeNumerically(">", before)) })
}

// moves waits until the job runs on south in its second attempt, and expects that it could run once on each worker, in
// this order.
func (s *scenario) moves(job *trainer.TrainJob, workers ...string) {
	s.Helper()
	s.Runs(job, south, 2)
	var ran []string
	for _, interval := range w.Recorder.Intervals(job.UID) {
		ran = append(ran, interval.Worker)
	}
	gomega.NewWithT(s).Expect(ran).To(gomega.Equal(workers), w.Recorder.Describe(job.UID))
}

// cleared heals the network, and waits until west has nothing of a job that has moved.
func (s *scenario) cleared(job *trainer.TrainJob) {
	s.Helper()
	s.heal()
	s.gone(job)
	s.Attempt(job, 2)
}

// gone waits until west has no copy and no pods of a job.
func (s *scenario) gone(job *trainer.TrainJob) {
	s.Helper()
	s.Eventually(func(g gomega.Gomega) {
		err := w.Workers[west].Get(context.Background(), client.ObjectKeyFromObject(job), &trainer.TrainJob{})
		g.Expect(client.IgnoreNotFound(err)).To(gomega.Succeed())
		g.Expect(err).To(gomega.HaveOccurred(), "the copy is there")
		g.Expect(w.PodsOf(g, west, job)).To(gomega.BeEmpty())
	})
}
