// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package sick

import (
	"context"
	"fmt"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

// nodePool is the label of the nodes of a pool.
const nodePool = "example.com/pool"

// pool is a node pool that is scaled to zero. Its nodes have four of a device that no other node has.
type pool struct {
	name   string
	device corev1.ResourceName
	taints []corev1.Taint
}

// register says in a WorkerCluster that the worker can add two nodes of the pool, until the test ends.
func (p pool) register(t *testing.T, worker string) {
	t.Helper()
	set := func(ctx context.Context, items ...v1alpha1.ExpandableNodes) {
		cluster := &v1alpha1.WorkerCluster{}
		check.Must(t, y.Hub.Get(ctx, client.ObjectKey{Name: worker}, cluster))
		patch := client.MergeFrom(cluster.DeepCopy())
		cluster.Spec.Expandable = items
		check.Must(t, y.Hub.Patch(ctx, cluster, patch))
	}
	set(t.Context(), v1alpha1.ExpandableNodes{
		Name: p.name, Selector: map[string]string{nodePool: p.name}, Taints: p.taints, Maximum: 2,
		Allocatable: v1alpha1.NodeResources{p.device: resource.MustParse("4"), corev1.ResourceCPU: resource.MustParse("96")},
	})
	t.Cleanup(func() { set(context.WithoutCancel(t.Context())) })
}

// grow adds nodes, as an autoscaler does, until the test ends.
func (p pool) grow(t *testing.T, worker string, nodes int) {
	t.Helper()
	check.Must(t, y.Yard.Workers[worker].AddNodes(t.Context(), clusters.NodeShape{
		Count: nodes, NamePrefix: worker + "-" + p.name, Labels: map[string]string{nodePool: p.name}, Taints: p.taints,
		Capacity: corev1.ResourceList{p.device: resource.MustParse("4")},
	}))
	t.Cleanup(func() {
		check.Must(t, y.Workers[worker].DeleteAllOf(context.WithoutCancel(t.Context()), &corev1.Node{}, client.MatchingLabels{nodePool: p.name}))
	})
}

// job is a gang of pods that each need all devices of a node.
func (p pool) job(at string, pods int32, changes ...func(*trainer.TrainJob)) *sickness {
	return &sickness{at: at, job: yard.Job{Nodes: pods, RunFor: clusters.RunForever}, change: func(job *trainer.TrainJob) {
		devices := corev1.ResourceList{p.device: resource.MustParse("4")}
		job.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Requests: devices, Limits: devices}
		for _, change := range changes {
			change(job)
		}
	}}
}

// waitsForNodes waits until the pods of a job are on a worker, and wait for nodes there.
func waitsForNodes(t *testing.T, job *trainer.TrainJob, worker string, pods int) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		d := &v1alpha1.Dispatch{}
		g.Expect(y.Hub.Get(t.Context(), client.ObjectKeyFromObject(job), d)).To(gomega.Succeed())
		g.Expect(d.Spec.Cluster).To(gomega.BeEquivalentTo(worker), "%v", d.Status.Explanation)
		g.Expect(d.Spec.AddedNodes).To(gomega.BeEquivalentTo(pods))
		var list corev1.PodList
		ofJob := client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: job.Name}
		g.Expect(y.Workers[worker].List(t.Context(), &list, client.InNamespace(team), ofJob)).To(gomega.Succeed())
		g.Expect(list.Items).To(gomega.HaveLen(pods))
		for i := range list.Items {
			g.Expect(list.Items[i].Spec.NodeName).To(gomega.BeEmpty())
		}
	})
}

// TestPoolGrows: a worker without a node that has a device gets a job that needs it, because it can add such nodes. No
// second job gets the same nodes, before they come and when they are there. As on GKE, the nodes are tainted, and
// admission lets pods that ask for the device tolerate that. It changes a worker, so it does not run beside other
// tests.
func TestPoolGrows(t *testing.T) {
	tpus := pool{name: "tpus", device: "example.com/tpu", taints: []corev1.Taint{
		{Key: "example.com/tpu", Value: "present", Effect: corev1.TaintEffectNoSchedule},
	}}
	// It brings namespace and runtime to the worker, without which nobody there can say what pods become.
	runs(t, (&sickness{at: east, job: yard.Job{RunFor: "1h"}}).submit(t, "before-tpus"))
	first := tpus.job(east, 2).submit(t, "first-on-tpus")
	expectWords(t, first, "State: Waiting (NoFit)", "no node has the resource example.com/tpu")
	tpus.register(t, east)
	waitsForNodes(t, first, east, 2)
	expectWords(t, first, "Decision: would add 2 nodes of tpus; ")
	second := tpus.job(east, 1).submit(t, "second-on-tpus")
	expectWords(t, second, "State: Waiting (NoFit)", "2 nodes in all, 2 of which the worker would have to add")

	tpus.grow(t, east, 2)
	runs(t, first)
	expectWords(t, second, "State: Waiting (NoFit)")
	check.Must(t, y.Hub.Delete(t.Context(), first))
	d := runs(t, second)
	check.Equal(t, int32(0), d.Spec.AddedNodes, "nodes to add for a job that found its node there")
}

// TestPoolThatDoesNotGrow: a job whose worker does not add the nodes in time goes to the next worker. Its policies are
// for all jobs, so it does not run beside other tests.
func TestPoolThatDoesNotGrow(t *testing.T) {
	policy := &v1alpha1.DispatchPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "impatient-for-nodes"},
		Spec: v1alpha1.DispatchPolicySpec{
			Jobs:             v1alpha1.JobSelector{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"policy": "impatient"}}},
			Scoring:          []v1alpha1.Score{{Name: v1alpha1.ScorePreference, Weight: 1, Order: []v1alpha1.ClusterName{east, west}}},
			AdmissionTimeout: &metav1.Duration{Duration: 5 * time.Second},
		},
	}
	others := &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: "others"}, Spec: v1alpha1.DispatchPolicySpec{Priority: -1}}
	for _, object := range []client.Object{others, policy} { // With a policy, each job needs one.
		create(t, y.Hub, object)
	}
	asics := pool{name: "asics", device: "example.com/asic"}
	for _, worker := range []string{east, west} {
		asics.register(t, worker)
	}
	job := asics.job("", 2, func(job *trainer.TrainJob) { job.Labels = map[string]string{"policy": "impatient"} }).submit(t, "on-asics")
	waitsForNodes(t, job, east, 2)
	waitsForNodes(t, job, west, 2)
	asics.grow(t, west, 2)
	d := runs(t, job)
	check.Equal(t, west, string(d.Spec.Cluster), "the worker of the job")
	check.Equal(t, fmt.Sprint(v1alpha1.OutcomeAdmissionTimeout), fmt.Sprint(d.Status.History[0].Outcome), "the outcome on east")
	expectWords(t, job, "State: Running on worker west", "AdmissionTimeout")
}
