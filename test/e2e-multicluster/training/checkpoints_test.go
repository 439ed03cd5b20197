// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package training

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

const (
	savers = "savers"
	device = corev1.ResourceName("example.com/gpu")
	// save is how long the pods have to save.
	save = 10 * time.Second
)

// A program that saves on SIGTERM and goes on by the variables of its attempt runs on a worker that is cut off, drained
// from the next, and preempted there. Each step is done once, and in order: no step that was saved is lost, and none is
// done by two attempts.
func TestCheckpoints(t *testing.T) {
	installRuntime(t)
	withCheckpoints(t)
	y.Cordon(t, east, true)
	job := saver(t, "saves", 2, 1)
	check.Must(t, y.Hub.Create(t.Context(), job))
	t.Cleanup(func() { check.Must(t, y.Hub.Delete(context.Background(), job)) })
	trains(t, job, west)

	y.Cordon(t, east, false)
	mend, err := y.Yard.Workers[west].CutFrom(t.Context(), y.Yard.Hub)
	check.Must(t, err)
	t.Cleanup(func() { _ = mend(context.Background()) }) // It is mended below unless the test fails.
	trains(t, job, east)
	check.Must(t, mend(t.Context()))
	ready(t, west)

	y.Edit(t, east, func(worker *v1alpha1.WorkerCluster) { worker.Spec.Drain = true })
	trains(t, job, west)
	y.Edit(t, east, func(worker *v1alpha1.WorkerCluster) { worker.Spec.Drain = false })

	urgent := saver(t, "urgent", 1, 2)
	urgent.Annotations[v1alpha1.AnnotationPriorityClass] = "urgent"
	urgent.Annotations[v1alpha1.AnnotationClusters] = "region=" + west
	urgent.Spec.Trainer.Args = []string{"--steps=20"}
	check.Must(t, y.Hub.Create(t.Context(), urgent))
	trains(t, job, east)

	y.Eventually(t, func(g gomega.Gomega) {
		g.Expect(y.Hub.Get(t.Context(), client.ObjectKeyFromObject(urgent), urgent)).To(gomega.Succeed())
		g.Expect(meta.IsStatusConditionTrue(urgent.Status.Conditions, trainer.TrainJobComplete)).To(gomega.BeTrue())
		var outcomes []string
		for _, ended := range y.DispatchOf(g, job).Status.History {
			outcomes = append(outcomes, string(ended.Outcome))
		}
		g.Expect(outcomes).To(gomega.Equal([]string{
			string(v1alpha1.OutcomeWorkerLost), string(v1alpha1.OutcomeDrained), string(v1alpha1.OutcomePreempted),
		}))
	})
	list := steps(t, job)
	attempts := map[int]int{}
	for i, done := range list {
		attempts[done.attempt]++
		if done.step != i+1 || i > 0 && done.attempt < list[i-1].attempt {
			t.Fatalf("line %d of %d: attempt %d has done step %d after attempt %d had done %d", i+1, len(list), done.attempt, done.step,
				list[max(i-1, 0)].attempt, list[max(i-1, 0)].step)
		}
	}
	t.Logf("%d steps, by attempt: %v", len(list), attempts)
}

// withCheckpoints makes a namespace whose jobs have checkpoints, and gives both workers devices.
func withCheckpoints(t *testing.T) {
	t.Helper()
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: savers}},
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 1000},
		&v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: savers}, Spec: v1alpha1.DispatchPolicySpec{
			Jobs:       v1alpha1.JobSelector{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: savers}}},
			Preemption: v1alpha1.PreemptLowerPriority,
			Checkpoint: &v1alpha1.Checkpointing{Grace: &metav1.Duration{Duration: save}},
		}},
	} {
		check.Must(t, y.Hub.Create(t.Context(), object))
	}
	for _, name := range []string{east, west} {
		var nodes corev1.NodeList
		check.Must(t, y.Workers[name].List(t.Context(), &nodes))
		for i := range nodes.Items {
			node, before := &nodes.Items[i], client.MergeFrom(nodes.Items[i].DeepCopy())
			for _, list := range []corev1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
				list[device] = resource.MustParse("2")
			}
			check.Must(t, y.Workers[name].Status().Patch(t.Context(), node, before))
		}
	}
}

// saver is the TrainJob of the sample without an end, with devices and checkpoints.
func saver(t *testing.T, name string, nodes int32, devices int64) *trainer.TrainJob {
	t.Helper()
	job := sampleJob(t)
	job.Namespace, job.Name = savers, name
	job.Annotations = map[string]string{v1alpha1.AnnotationCheckpoint: "file:///checkpoints/$(UID)"}
	job.Spec.Trainer.NumNodes = ptr.To(nodes)
	job.Spec.Trainer.Args = []string{"--steps=1000000", "--pace=100ms"}
	amount := corev1.ResourceList{device: *resource.NewQuantity(devices, resource.DecimalSI)}
	job.Spec.Trainer.ResourcesPerNode.Limits = amount
	job.Spec.Trainer.ResourcesPerNode.Requests[device] = amount[device]
	return job
}

// trains waits until the present attempt of a job, on this worker, has done 30 steps.
func trains(t *testing.T, job *trainer.TrainJob, worker string) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		d := y.DispatchOf(g, job)
		g.Expect(string(d.Spec.Cluster)).To(gomega.Equal(worker))
		count := 0
		for _, done := range steps(t, job) {
			if done.attempt == int(d.Spec.Attempt) {
				count++
			}
		}
		g.Expect(count).To(gomega.BeNumerically(">=", 30), "steps of attempt %d", d.Spec.Attempt)
	})
}

func ready(t *testing.T, worker string) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		object := &v1alpha1.WorkerCluster{}
		g.Expect(y.Hub.Get(t.Context(), client.ObjectKey{Name: worker}, object)).To(gomega.Succeed())
		g.Expect(meta.IsStatusConditionTrue(object.Status.Conditions, v1alpha1.WorkerClusterReady)).To(gomega.BeTrue())
	})
}

// done is a line of the program's list: an attempt has done a step.
type done struct{ attempt, step int }

// steps reads the list of a job's steps.
func steps(t *testing.T, job *trainer.TrainJob) (list []done) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(checkpoints, string(job.UID), "steps"))
	if os.IsNotExist(err) {
		return nil
	}
	check.Must(t, err)
	for line := range strings.Lines(string(text)) {
		var d done
		if _, err := fmt.Sscan(line, &d.attempt, &d.step); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		list = append(list, d)
	}
	return list
}
