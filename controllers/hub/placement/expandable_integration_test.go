// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"strings"
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
)

const (
	// tpu is a resource that no node has.
	tpu = corev1.ResourceName("example.com/tpu")
	// nodePool is the label of the nodes of a pool.
	nodePool = "example.com/pool"
)

// tpuPool is a pool without nodes, as an admin describes it.
func tpuPool(maximum int32) v1alpha1.ExpandableNodes {
	return v1alpha1.ExpandableNodes{
		Name: "tpus", Selector: map[string]string{nodePool: "tpus"}, Maximum: maximum,
		Allocatable: v1alpha1.NodeResources{tpu: resource.MustParse("4"), corev1.ResourceCPU: resource.MustParse("96")},
	}
}

func withPool(maximum int32) func(*v1alpha1.WorkerCluster) {
	return func(worker *v1alpha1.WorkerCluster) {
		worker.Spec.Expandable = []v1alpha1.ExpandableNodes{tpuPool(maximum)}
	}
}

// tpus makes a job one of pods that each need all TPUs of a node.
func tpus(pods int32) func(*trainer.TrainJob) {
	return func(job *trainer.TrainJob) {
		job.Spec.Trainer.NumNodes = &pods
		wants := corev1.ResourceList{tpu: resource.MustParse("4")}
		job.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Requests: wants, Limits: wants}
	}
}

// come creates nodes of the pool, as an autoscaler does, and waits until the manager knows as many that take pods, or
// that do not take pods yet.
func (s *scene) come(t *testing.T, worker v1alpha1.ClusterName, ready corev1.ConditionStatus, names ...string) {
	t.Helper()
	server := s.Worker(worker)
	for _, name := range names {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{nodePool: "tpus"}}}
		err := server.Admin.Create(t.Context(), node)
		if check.Must(t, client.IgnoreAlreadyExists(err)); err != nil {
			check.Must(t, server.Admin.Get(t.Context(), client.ObjectKeyFromObject(node), node))
		} else {
			t.Cleanup(func() { check.Must(t, server.Admin.Delete(context.WithoutCancel(t.Context()), node)) })
		}
		node.Status.Allocatable = list(string(tpu), "4", "cpu", "96", "pods", "110")
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		check.Must(t, server.Admin.Status().Update(t.Context(), node))
	}
	known := func() (nodes int) {
		for _, node := range server.Connection.Inventory().Snapshot().Nodes {
			if node.Labels[nodePool] != "" && node.Schedulable == (ready == corev1.ConditionTrue) {
				nodes++
			}
		}
		return nodes
	}
	gomega.NewWithT(t).Eventually(known, check.Patience, 10*time.Millisecond).Should(gomega.BeNumerically(">=", len(names)), "nodes that the hub knows")
}

// runOn creates the pods of a job on nodes of its worker, and waits until the manager knows them.
func (s *scene) runOn(t *testing.T, d *v1alpha1.Dispatch, nodes ...string) {
	t.Helper()
	set, server := d.Spec.PodSets[0], s.Worker(d.Spec.Cluster)
	for _, node := range nodes {
		server.Create(t, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: d.Namespace, Name: d.Name + "-" + node,
				Labels: map[string]string{jobsetv1alpha2.JobSetNameKey: d.Name, jobsetv1alpha2.ReplicatedJobNameKey: set.Name},
			},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
				Name: "node", Image: "none", Resources: corev1.ResourceRequirements{Requests: set.Requests, Limits: set.Requests},
			}}},
		})
	}
	bound := func() int32 { return server.Connection.Inventory().Snapshot().Gangs[s.Key(d.Name)][set.Name].Bound }
	gomega.NewWithT(t).Eventually(bound, check.Patience, 10*time.Millisecond).Should(gomega.BeEquivalentTo(len(nodes)), "pods that the hub knows")
}

// A job is placed on a worker that has to add nodes for it, and holds them: before they come, while they come, when
// they are there and when its pods run. So no other job gets them, also after a restart.
func TestAddedNodesAreHeld(t *testing.T) {
	s := newScene(t)
	s.Submit(t, "first", tpus(2))
	d := s.expect(t, "first", v1alpha1.ReasonNoFit)
	check.Equal(t, v1alpha1.ReasonNoMatchingNode, d.Status.Explanation[0].Reason, "without a pool no worker has TPUs")
	s.worker(t, east, withPool(3))
	d, _ = s.reconcile(t, "first")
	check.Equal(t, east, d.Spec.Cluster, "the worker of the first job")
	if words := d.Annotations[v1alpha1.AnnotationDecision]; !strings.HasPrefix(words, "would add 2 nodes of tpus; ") {
		t.Errorf("the decision says %q", words)
	}
	s.tell(d)

	s.Submit(t, "second", tpus(2))
	waits := func(when, nodes string) {
		t.Helper()
		s.expect(t, "second", v1alpha1.ReasonNoFit)
		s.restart(t) // A new process counts the same, and explains anew.
		d := s.expect(t, "second", v1alpha1.ReasonNoFit)
		want := "lacks 4 example.com/tpu on nodes with at least 4 free; 1 more such node would do; it has room for 1 of 2 pods, " + nodes
		check.Equal(t, want, d.Status.Explanation[0].Message, "%s: why the second job waits", when)
	}
	waits("to come", "3 nodes in all, 3 of which the worker would have to add")
	s.come(t, east, corev1.ConditionTrue, "tpu-0")
	waits("one is there", "3 nodes in all, 2 of which the worker would have to add")
	s.come(t, east, corev1.ConditionTrue, "tpu-0", "tpu-1")
	waits("both are there", "3 nodes in all, 1 of which the worker would have to add")
	s.runOn(t, d, "tpu-0", "tpu-1")
	waits("the first job runs", "3 nodes in all, 1 of which the worker would have to add")

	s.Submit(t, "third", tpus(1))
	third, _ := s.reconcile(t, "third")
	check.Equal(t, east, third.Spec.Cluster, "there is one node more to add")
	s.tell(third)
	s.Submit(t, "fourth", tpus(1))
	s.expect(t, "fourth", v1alpha1.ReasonNoFit)
}

// Nodes of a pool that take no pods count against its maximum.
func TestNodesThatAreNotReadyCount(t *testing.T) {
	s := newScene(t)
	s.worker(t, east, withPool(2))
	s.come(t, east, corev1.ConditionFalse, "tpu-0")
	s.Submit(t, "two", tpus(2))
	s.expect(t, "two", v1alpha1.ReasonNoFit)
	s.come(t, east, corev1.ConditionTrue, "tpu-0")
	d, _ := s.reconcile(t, "two")
	check.Equal(t, east, d.Spec.Cluster, "the worker of a job that needs the node that is there and another one")
	if words := d.Annotations[v1alpha1.AnnotationDecision]; !strings.HasPrefix(words, "would add 1 node of tpus; ") {
		t.Errorf("the decision says %q", words)
	}
}

// Room that is there comes first, unless the policy says otherwise.
func TestRoomThatIsThereComesFirst(t *testing.T) {
	s := newScene(t)
	s.worker(t, west, withPool(2))
	s.come(t, west, corev1.ConditionTrue, "tpu-0")
	s.worker(t, east, withPool(8))
	prefer := []v1alpha1.Score{{Name: v1alpha1.ScorePreference, Weight: 1, Order: []v1alpha1.ClusterName{east}}}
	policy := s.Policy(t, v1alpha1.DispatchPolicySpec{Scoring: prefer})
	for _, test := range []struct {
		addNodes v1alpha1.AddNodes
		pods     int32
		want     v1alpha1.ClusterName
	}{
		{addNodes: v1alpha1.AddNodesByScore, pods: 1, want: east}, {addNodes: v1alpha1.AddNodesLast, pods: 1, want: west},
		{addNodes: v1alpha1.AddNodesNever, pods: 1}, {addNodes: v1alpha1.AddNodesLast, pods: 2, want: east},
	} {
		policy.Spec.AddNodes = test.addNodes
		check.Must(t, s.Hub.Admin.Update(t.Context(), policy))
		name := strings.ToLower(fmt.Sprintf("%s-%d", test.addNodes, test.pods))
		s.Submit(t, name, tpus(test.pods))
		if test.want == "" {
			s.expect(t, name, v1alpha1.ReasonNoFit)
			continue
		}
		d, _ := s.reconcile(t, name)
		check.Equal(t, test.want, d.Spec.Cluster, "the worker of a job of %d pods with addNodes %s", test.pods, test.addNodes)
		s.tell(d)
	}
}

// A pool that does not grow in time is a refusal like any other: the job goes to the pool of another worker, whose
// nodes are kept for it meanwhile, and the first pool is left alone for a while.
func TestPoolThatDoesNotGrow(t *testing.T) {
	s := newScene(t)
	s.worker(t, east, withPool(2))
	job, next := s.inLine(t, "job", "other", tpus(2))
	d, _ := s.reconcile(t, job)
	check.Equal(t, east, d.Spec.Cluster, "the worker of the job")
	check.Equal(t, v1alpha1.ReasonNoMatchingNode, s.elsewhere(t, d).Reason, "no other worker could add nodes")
	s.worker(t, west, withPool(2))
	check.Equal(t, "worker west has room for the job", s.elsewhere(t, d).Message, "where the job can go")

	s.expect(t, next, v1alpha1.ReasonNoFit)
	s.report(t, d, v1alpha1.DispatchMirrored, metav1.ConditionFalse, v1alpha1.OutcomeAdmissionTimeout)
	d, _ = s.reconcile(t, job)
	check.Equal(t, west, d.Spec.Cluster, "the next worker of the job")
	check.Equal(t, int32(2), d.Spec.Attempt, "attempt")
	s.tell(d)
	other, _ := s.reconcile(t, next)
	check.Equal(t, east, other.Spec.Cluster, "the first pool is free for others")
}

// The API server refuses items that could not be meant.
func TestExpandableOfTheAPI(t *testing.T) {
	s := newScene(t)
	many := make([]v1alpha1.ExpandableNodes, 17)
	for i := range many {
		many[i] = tpuPool(1)
		many[i].Name = fmt.Sprint("tpus-", i)
	}
	changed := func(change func(*v1alpha1.ExpandableNodes)) []v1alpha1.ExpandableNodes {
		item := tpuPool(4)
		change(&item)
		return []v1alpha1.ExpandableNodes{item}
	}
	for name, test := range map[string]struct {
		items []v1alpha1.ExpandableNodes
		want  string
	}{
		"Most":      {items: many[:16]},
		"TooMany":   {items: many, want: "must have at most 16 items"},
		"Twice":     {items: []v1alpha1.ExpandableNodes{tpuPool(1), tpuPool(2)}, want: "Duplicate value"},
		"Name":      {items: changed(func(item *v1alpha1.ExpandableNodes) { item.Name = "TPUs" }), want: "name must have lower case letters"},
		"Selector":  {items: changed(func(item *v1alpha1.ExpandableNodes) { item.Selector = map[string]string{} }), want: "should have at least 1 properties"},
		"HostName":  {items: changed(func(item *v1alpha1.ExpandableNodes) { item.Selector[corev1.LabelHostname] = "a" }), want: "names a single node"},
		"Label":     {items: changed(func(item *v1alpha1.ExpandableNodes) { item.Labels = map[string]string{nodePool: "b"} }), want: "labels must not repeat them"},
		"Labels":    {items: changed(func(item *v1alpha1.ExpandableNodes) { item.Labels = map[string]string{"zone": "b"} })},
		"Nothing":   {items: changed(func(item *v1alpha1.ExpandableNodes) { item.Allocatable = v1alpha1.NodeResources{} }), want: "should have at least 1 properties"},
		"NoMaximum": {items: changed(func(item *v1alpha1.ExpandableNodes) { item.Maximum = 0 }), want: "should be greater than or equal to 1"},
	} {
		t.Run(name, func(t *testing.T) {
			worker := &v1alpha1.WorkerCluster{Spec: v1alpha1.WorkerClusterSpec{
				Connection: v1alpha1.Connection{KubeconfigPath: "/none"}, Expandable: test.items,
			}}
			worker.GenerateName = "expandable-"
			err := s.Hub.Admin.Create(t.Context(), worker, client.DryRunAll)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("the API server says %v, want %q", err, test.want)
			}
		})
	}
}
