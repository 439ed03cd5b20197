// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// The runtime of a worker is edited by hand. The hub shows that and in which field, and keeps the jobs of a policy off the
// worker that want the hub's runtime, until somebody edits it back. Then the same job runs there.
func TestRuntimeDrift(t *testing.T) {
	const name = "drifting"
	apply(t, &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.DispatchPolicySpec{
		Runtime: v1alpha1.RuntimeSame,
	}})
	shared := &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: yard.RuntimeName}}
	current(t.Context(), gomega.NewWithT(t), y.Hub, shared)
	for _, c := range []client.Client{y.Hub, y.Workers[small], y.Workers[large]} {
		runtime := &trainer.TrainingRuntime{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name, Labels: shared.Labels}, Spec: *shared.Spec.DeepCopy(),
		}
		check.Must(t, c.Create(t.Context(), runtime))
		t.Cleanup(func() { check.Must(t, client.IgnoreNotFound(c.Delete(context.Background(), runtime))) })
	}
	onLarge := &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	numNodes := shared.Spec.MLPolicy.NumNodes
	edit(t.Context(), t, y.Workers[large], onLarge, func(runtime *trainer.TrainingRuntime) {
		runtime.Spec.MLPolicy.NumNodes = ptr.To(ptr.Deref(numNodes, 1) + 1)
	})
	shown := func(g gomega.Gomega) []v1alpha1.WorkerRuntime {
		worker := &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: large}}
		return current(t.Context(), g, y.Hub, worker).Status.Runtimes
	}
	y.Eventually(t, func(g gomega.Gomega) {
		g.Expect(shown(g)).To(gomega.ConsistOf(gomega.And(
			gomega.HaveField("Name", name), gomega.HaveField("State", v1alpha1.RuntimeDiffers),
			gomega.HaveField("Paths", []string{"spec.mlPolicy.numNodes"}))))
	})

	job := yard.Job{Name: name, Nodes: 2, GPUs: 8, RunFor: "1s"}.TrainJob() // Only large has two nodes with eight GPUs.
	job.Spec.RuntimeRef.Kind, job.Spec.RuntimeRef.Name = ptr.To(trainer.TrainingRuntimeKind), name
	check.Must(t, y.Hub.Create(t.Context(), job))
	t.Cleanup(func() { check.Must(t, client.IgnoreNotFound(y.Hub.Delete(context.Background(), job))) })
	d := waitsFor(t, job, v1alpha1.ReasonNoFit)
	why := map[v1alpha1.ClusterName]string{}
	for _, line := range d.Status.Explanation {
		why[line.Cluster] = line.Reason + ": " + line.Message
	}
	if got := why[large]; !strings.HasPrefix(got, v1alpha1.ReasonRuntimeDiffers) || !strings.Contains(got, "it differs in spec.mlPolicy.numNodes") {
		t.Errorf("the job does not run on %s because %q", large, got)
	}
	if got := why[small]; strings.HasPrefix(got, v1alpha1.ReasonRuntimeDiffers) {
		t.Errorf("the runtime of %s is the hub's, but: %q", small, got)
	}

	edit(t.Context(), t, y.Workers[large], onLarge, func(runtime *trainer.TrainingRuntime) { runtime.Spec.MLPolicy.NumNodes = numNodes })
	check.Equal(t, large, placedOn(t, job), "the worker of the job")
	ends(t, job, trainer.TrainJobComplete)
	y.Eventually(t, func(g gomega.Gomega) { g.Expect(shown(g)).To(gomega.BeEmpty()) })
}

// The runtime of a worker asks for more pods than the hub's, and than the worker has nodes. A job that takes any runtime
// waits, although the hub's runtime would fit there. When the worker's runtime is changed to what the worker has room for,
// the job is woken, and runs there with the pods that were counted.
func TestOwnRuntimeIsCounted(t *testing.T) {
	const name = "own"
	shared := &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: yard.RuntimeName}}
	current(t.Context(), gomega.NewWithT(t), y.Hub, shared)
	nodes := map[client.Client]int32{y.Hub: 1, y.Workers[large]: 100}
	for _, c := range []client.Client{y.Hub, y.Workers[large]} {
		runtime := &trainer.TrainingRuntime{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name, Labels: shared.Labels}, Spec: *shared.Spec.DeepCopy(),
		}
		runtime.Spec.MLPolicy.NumNodes = ptr.To(nodes[c])
		check.Must(t, c.Create(t.Context(), runtime))
		t.Cleanup(func() { check.Must(t, client.IgnoreNotFound(c.Delete(context.Background(), runtime))) })
	}
	y.Eventually(t, func(g gomega.Gomega) {
		worker := &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: large}}
		g.Expect(current(t.Context(), g, y.Hub, worker).Status.Runtimes).To(gomega.ContainElement(gomega.And(
			gomega.HaveField("Name", name), gomega.HaveField("State", v1alpha1.RuntimeDiffers))))
	})

	job := yard.Job{Name: name, GPUs: 8, RunFor: "1s"}.TrainJob() // Only large has nodes with eight GPUs.
	job.Spec.RuntimeRef.Kind, job.Spec.RuntimeRef.Name, job.Spec.Trainer.NumNodes = ptr.To(trainer.TrainingRuntimeKind), name, nil
	check.Must(t, y.Hub.Create(t.Context(), job))
	t.Cleanup(func() { check.Must(t, client.IgnoreNotFound(y.Hub.Delete(context.Background(), job))) })
	d := waitsFor(t, job, v1alpha1.ReasonNoFit)
	const words = `the pods are counted as the worker's own TrainingRuntime "own" makes them`
	at := slices.IndexFunc(d.Status.Explanation, func(line v1alpha1.ClusterExplanation) bool { return line.Cluster == large })
	if why := d.Status.Explanation[at]; why.Reason != v1alpha1.ReasonInsufficientResources || !strings.Contains(why.Message, words) {
		t.Errorf("the job does not run on %s because %s: %s", large, why.Reason, why.Message)
	}

	onLarge := &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	edit(t.Context(), t, y.Workers[large], onLarge, func(runtime *trainer.TrainingRuntime) { runtime.Spec.MLPolicy.NumNodes = ptr.To[int32](2) })
	check.Equal(t, large, placedOn(t, job), "the worker of the job")
	d = &v1alpha1.Dispatch{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name}}
	current(t.Context(), gomega.NewWithT(t), y.Hub, d)
	check.Equal(t, int32(2), d.Spec.PodSets[0].Count, "pods that were counted")
	if d.Spec.Counted.WorkerRuntime == "" {
		t.Errorf("the Dispatch does not say which runtime was counted: %+v", d.Spec.Counted)
	}
	y.Eventually(t, func(g gomega.Gomega) {
		jobSet := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name}}
		current(t.Context(), g, y.Workers[large], jobSet)
		g.Expect(jobSet.Spec.ReplicatedJobs).To(gomega.HaveLen(1))
		g.Expect(jobSet.Spec.ReplicatedJobs[0].Template.Spec.Parallelism).To(gomega.HaveValue(gomega.BeEquivalentTo(2)), "pods that the worker makes")
	})
	ends(t, job, trainer.TrainJobComplete)
}
