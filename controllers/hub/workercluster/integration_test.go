// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workercluster_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
	"github.com/trainyard/trainyard/controllers/hub/workercluster"
	"github.com/trainyard/trainyard/dispatch/accelerators"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

const gpu = corev1.ResourceName("nvidia.com/gpu")

// A cluster may be a worker only once. The older of two WorkerClusters gets it, then the first by name.
func TestDuplicate(t *testing.T) {
	s := newScene(t)
	s.register(t, "a", s.first)
	s.register(t, "b", s.first)
	original := s.become(t, "a", v1alpha1.ReasonConnected)
	if original.Status.ClusterID != s.first.ID {
		t.Errorf("cluster ID is %q, want that of the worker, %q", original.Status.ClusterID, s.first.ID)
	}
	duplicate := s.become(t, "b", v1alpha1.ReasonDuplicate)
	if message := messageOf(duplicate); !strings.Contains(message, `"a"`) {
		t.Errorf("the message does not name the other WorkerCluster: %s", message)
	}
	check.Equal(t, "", duplicate.Status.ClusterID, "the duplicate has the cluster ID")
	s.become(t, "a", v1alpha1.ReasonConnected)
	s.expectJoined(t, "a")

	s.unregister(t, "a")
	s.reconcile(t, "a")
	s.expectJoined(t)
	s.become(t, "b", v1alpha1.ReasonConnected)
	s.expectJoined(t, "b")
}

// The hub cannot be its own worker: the copy of a TrainJob would have the name of that TrainJob.
func TestHubIsNoWorker(t *testing.T) {
	s := newScene(t)
	s.register(t, "self", s.Hub)
	worker := s.become(t, "self", v1alpha1.ReasonDuplicate)
	if message := messageOf(worker); !strings.Contains(message, "hub itself") || !strings.Contains(message, "docs/install.md") {
		t.Errorf("the message does not say that it is the hub, and what to do instead: %s", message)
	}
	check.Equal(t, "", worker.Status.ClusterID, "the hub was pinned as a worker, with the ID")
	s.expectJoined(t)
}

// The manager does not follow credentials to another cluster until an admin names that cluster.
func TestIdentity(t *testing.T) {
	s := newScene(t)
	s.register(t, "moved", s.first)
	s.become(t, "moved", v1alpha1.ReasonConnected)
	before := s.joined["moved"]

	s.writeCredentials(t, "moved", s.second)
	worker := s.become(t, "moved", v1alpha1.ReasonIdentityChanged)
	if worker.Status.ClusterID != s.first.ID {
		t.Errorf("cluster ID is %q, want the one of the first contact, %q", worker.Status.ClusterID, s.first.ID)
	}
	command := fmt.Sprintf("kubectl annotate workercluster moved %s=%s", v1alpha1.AnnotationAcceptIdentity, s.second.ID)
	if message := messageOf(worker); !strings.Contains(message, command) {
		t.Errorf("the message does not say how to agree:\n%s\nwant in it: %s", message, command)
	}
	s.accept(t, "moved", "another-cluster")
	check.Equal(t, s.first.ID, s.become(t, "moved", v1alpha1.ReasonIdentityChanged).Status.ClusterID,
		"the ID after agreeing to another cluster")
	if client, err := s.joined["moved"].Client(); s.joined["moved"] != before || err == nil {
		t.Errorf("controllers have %v of a cluster that nobody has agreed to", client)
	}
	s.accept(t, "moved", s.second.ID)
	check.Equal(t, s.second.ID, s.become(t, "moved", v1alpha1.ReasonConnected).Status.ClusterID,
		"after agreeing the ID")
	if s.joined["moved"] == before {
		t.Error("controllers still have the connection to the old cluster")
	}
}

// The status shows groups of alike nodes, free and total GPUs, and jobs. It is written at most once per interval.
func TestCapacity(t *testing.T) {
	s := newScene(t)
	for name, node := range map[string]struct {
		gpus, product string
		notReady      bool
	}{
		"big-0":  {gpus: "8", product: "NVIDIA-H100"},
		"big-1":  {gpus: "8", product: "NVIDIA-H100"},
		"small":  {gpus: "4", product: "NVIDIA-L4"},
		"plain":  {},
		"broken": {gpus: "8", product: "NVIDIA-H100", notReady: true},
	} {
		s.createNode(t, name, node.product, node.gpus, node.notReady)
	}
	s.createPod(t, "three", "big-0", "3")
	s.createPod(t, "unbound", "", "8")
	s.createDispatch(t, "live", "gpus", false)
	s.createDispatch(t, "ended", "gpus", true)
	s.createDispatch(t, "elsewhere", "other", false)

	s.register(t, "gpus", s.first)
	worker := s.become(t, "gpus", v1alpha1.ReasonConnected)
	of := func(gpus string) corev1.ResourceList {
		list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("96"), corev1.ResourcePods: resource.MustParse("110")}
		if gpus != "" {
			list[gpu] = resource.MustParse(gpus)
		}
		return list
	}
	used := of("5")
	used[corev1.ResourcePods] = resource.MustParse("109")
	want := []v1alpha1.NodeGroup{
		{
			Product: "NVIDIA-H100", Resource: gpu, Unit: "Device", Nodes: 2, Labels: map[string]string{string(gpu) + ".product": "NVIDIA-H100"}, Allocatable: of("8"),
			Free: []v1alpha1.FreeNodes{{GPUs: 8, Nodes: 1, Free: of("8")}, {GPUs: 5, Nodes: 1, Free: used}},
		},
		{Nodes: 1, Allocatable: of(""), Free: []v1alpha1.FreeNodes{{Nodes: 1, Free: of("")}}},
		{
			Product: "NVIDIA-L4", Resource: gpu, Unit: "Device", Nodes: 1, Labels: map[string]string{string(gpu) + ".product": "NVIDIA-L4"}, Allocatable: of("4"),
			Free: []v1alpha1.FreeNodes{{GPUs: 4, Nodes: 1, Free: of("4")}},
		},
	}
	check.Diff(t, want, worker.Status.NodeGroups, "node groups")
	if worker.Status.GPUs != "17/20" || worker.Status.Jobs != 1 {
		t.Errorf("GPUs %q and %d jobs, want 17/20 and 1", worker.Status.GPUs, worker.Status.Jobs)
	}

	s.createPod(t, "four", "small", "4")
	gomega.NewWithT(t).Eventually(func() int64 {
		connection, _ := s.fleet.Get("gpus")
		for _, node := range connection.Inventory().Snapshot().Nodes {
			if node.Name == "small" {
				return node.Used[gpu]
			}
		}
		return 0
	}, patience, 10*time.Millisecond).Should(gomega.BeEquivalentTo(4))
	s.Clock.Step(4 * time.Second)
	within, result := s.reconcile(t, "gpus")
	if within.ResourceVersion != worker.ResourceVersion || result.RequeueAfter != time.Second {
		t.Errorf("within the interval GPUs are %q, and it is looked at again after %s; want no write, and 1s", within.Status.GPUs, result.RequeueAfter)
	}
	s.Clock.Step(time.Second)
	check.Equal(t, "13/20", s.become(t, "gpus", v1alpha1.ReasonConnected).Status.GPUs, "after the interval GPUs")
}

// A worker whose capacity report is missing gets no new jobs, and says why. Its present jobs go on.
func TestCapacityReportMissing(t *testing.T) {
	s := newScene(t)
	s.register(t, "reporting", s.first)
	s.become(t, "reporting", v1alpha1.ReasonConnected)
	counting := s.joined["reporting"]
	set := func(source v1alpha1.CapacitySource) {
		s.change(t, "reporting", func(worker *v1alpha1.WorkerCluster) { worker.Spec.Capacity = source })
	}
	set(v1alpha1.CapacityFromReport)
	worker := s.become(t, "reporting", v1alpha1.ReasonCapacityReportMissing)
	if message := messageOf(worker); !strings.Contains(message, "install it") || !strings.Contains(message, "spec.capacity to Pods") {
		t.Errorf("the message does not say what to do: %s", message)
	}
	connection := s.joined["reporting"]
	if connection == counting || connection == nil {
		t.Fatal("controllers have not been given the new connection")
	}
	worked, err := connection.Client()
	check.Must(t, err)
	// A controller asks the worker for the pods of a job, because the hub's caches hold no pods then.
	s.createPod(t, "somebodys", "", "1")
	var pods corev1.PodList
	if err := worked.List(t.Context(), &pods, client.InNamespace(metav1.NamespaceDefault)); err != nil || len(pods.Items) == 0 {
		t.Errorf("list pods: %d, %v", len(pods.Items), err)
	}
	set(v1alpha1.CapacityFromPods)
	s.become(t, "reporting", v1alpha1.ReasonConnected)
}

// A worker whose quota cannot be read gets no new jobs, and says what to do. Its present jobs go on. When Kueue and the
// rights are there, it is Ready.
func TestQuotaMissing(t *testing.T) {
	s := newScene(t)
	s.register(t, "queueing", s.second)
	s.become(t, "queueing", v1alpha1.ReasonConnected)
	set := func(kueue v1alpha1.KueueCapacity) {
		s.change(t, "queueing", func(worker *v1alpha1.WorkerCluster) { worker.Spec.Kueue.Capacity = kueue })
	}
	set(v1alpha1.KueueCapacityQuotaAndNodes)
	worker := s.become(t, "queueing", v1alpha1.ReasonQuotaMissing)
	if message := messageOf(worker); !strings.Contains(message, "has no ClusterQueue of Kueue") || !strings.Contains(message, "set spec.kueue.capacity to Ignore") {
		t.Errorf("the message does not say what to do: %s", message)
	}
	connection := s.joined["queueing"]
	if _, err := connection.Client(); err != nil {
		t.Errorf("controllers cannot work with the worker: %v", err)
	}
	set(v1alpha1.KueueCapacityIgnore)
	s.become(t, "queueing", v1alpha1.ReasonConnected)
	check.Equal(t, nil, s.joined["queueing"].Inventory().Snapshot().Quota, "quota is counted though nobody asks for it")
	check.Must(t, s.second.Cluster.ApplyFiles(t.Context(), "../../../capacity/testdata/kueue-crds.yaml"))
	set(v1alpha1.KueueCapacityQuota)
	s.become(t, "queueing", v1alpha1.ReasonConnected)
	if s.joined["queueing"].Inventory().Snapshot().Quota == nil {
		t.Error("no quota is counted")
	}
}

func messageOf(worker *v1alpha1.WorkerCluster) string {
	return meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterReady).Message
}

// expectJoined checks which workers have controllers.
func (s *scene) expectJoined(t *testing.T, want ...v1alpha1.ClusterName) {
	t.Helper()
	got := map[v1alpha1.ClusterName]bool{}
	for name := range s.joined {
		got[name] = true
	}
	wanted := map[v1alpha1.ClusterName]bool{}
	for _, name := range want {
		wanted[name] = true
	}
	check.Diff(t, wanted, got, "workers with controllers")
}

// createNode creates a node on the first worker.
func (s *scene) createNode(t *testing.T, name, product, gpus string, notReady bool) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	capacity := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("96"), corev1.ResourcePods: resource.MustParse("110")}
	if gpus != "" {
		node.Labels = map[string]string{string(gpu) + ".product": product}
		capacity[gpu] = resource.MustParse(gpus)
	}
	s.first.Create(t, node)
	node.Status.Capacity, node.Status.Allocatable = capacity, capacity
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if notReady {
		node.Status.Conditions[0].Status = corev1.ConditionFalse
	}
	check.Must(t, s.first.Admin.Status().Update(t.Context(), node))
}

// createPod creates a pod on the first worker that requests GPUs. Without a node the pod is not bound.
func (s *scene) createPod(t *testing.T, name, node, gpus string) {
	t.Helper()
	requests := corev1.ResourceList{gpu: resource.MustParse(gpus)}
	s.first.Create(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Name: "c", Image: "none", Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests},
		}}},
	})
}

// createDispatch creates a Dispatch of a job on a worker, and waits until the cache shows it.
func (s *scene) createDispatch(t *testing.T, name string, worker v1alpha1.ClusterName, finished bool) {
	t.Helper()
	job := stage.NewTrainJob(s.Namespace, name)
	job.UID = "u"
	d := s.Place(t, job, worker)
	if finished {
		s.SetCondition(t, d, v1alpha1.DispatchFinished, metav1.ConditionTrue, v1alpha1.ReasonComplete)
	}
	s.Settle(t, s.Cached)
}

// The hub's API server accepts the status of a worker, whatever the worker reports.
func TestWhatAWorkerSaysIsTaken(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	node := func(change func(*capacity.NodeState)) capacity.Snapshot {
		node := workercluster.NodeOf("node", nil, 1<<40, 0)
		change(node)
		return capacity.Snapshot{Nodes: []*capacity.NodeState{node}}
	}
	connection := remote.Status{KubernetesVersion: "v1.36.3", Trainer: remote.Trainer{Version: "v1alpha1", Fields: []string{"suspend"}}}
	for name, test := range map[string]struct {
		connection func(*remote.Status)
		snapshot   capacity.Snapshot
		groups     int
	}{
		"Usual":             {snapshot: node(func(*capacity.NodeState) {}), groups: 1},
		"KubernetesVersion": {connection: func(s *remote.Status) { s.KubernetesVersion = "v1.36.3+" + strings.Repeat("x", 64) }},
		"TrainerVersion":    {connection: func(s *remote.Status) { s.Trainer.Version = long }},
		"FieldNames":        {connection: func(s *remote.Status) { s.Trainer.Fields = []string{"a", long} }},
		"ManyFields": {connection: func(s *remote.Status) {
			for i := range 1000 {
				s.Trainer.Fields = append(s.Trainer.Fields, fmt.Sprint("field", i))
			}
		}},
		"MissingFields": {connection: func(s *remote.Status) {
			s.Trainer.Release, s.Trainer.Missing = "2.1", []string{"a", long}
			for i := range 1000 {
				s.Trainer.MissingOfRuntimes = append(s.Trainer.MissingOfRuntimes, fmt.Sprint("field", i))
			}
		}},
		"Product":     {snapshot: node(func(n *capacity.NodeState) { n.Labels["nvidia.com/gpu.product"] = long }), groups: 1},
		"LabelValue":  {snapshot: node(func(n *capacity.NodeState) { n.Labels["topology.kubernetes.io/zone"] = long }), groups: 1},
		"LabelKey":    {snapshot: node(func(n *capacity.NodeState) { n.Labels[long] = "a" }), groups: 1},
		"Resource":    {snapshot: node(func(n *capacity.NodeState) { n.Allocatable[corev1.ResourceName(long)] = 1 }), groups: 1},
		"GPUResource": {snapshot: node(func(n *capacity.NodeState) { n.Allocatable[corev1.ResourceName("nvidia.com/mig-"+long)] = 1 }), groups: 1},
		"ManyResources": {snapshot: node(func(n *capacity.NodeState) {
			for i := range 10_000 {
				n.Allocatable[corev1.ResourceName(fmt.Sprint("example.com/resource-", i))] = 1
			}
		}), groups: 1},
		"Taint": {snapshot: node(func(n *capacity.NodeState) {
			n.Taints = []corev1.Taint{{Key: "a", Value: long, Effect: corev1.TaintEffectNoSchedule}}
		})},
		"Count": {snapshot: node(func(n *capacity.NodeState) { n.Count = math.MaxInt }), groups: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			worker := &v1alpha1.WorkerCluster{Spec: v1alpha1.WorkerClusterSpec{Connection: v1alpha1.Connection{KubeconfigPath: "/none"}}}
			worker.GenerateName = "says-"
			check.Must(t, s.Hub.Admin.Create(t.Context(), worker))
			t.Cleanup(func() { s.unregister(t, worker.Name) })
			says := connection
			if test.connection != nil {
				test.connection(&says)
			}
			workercluster.SetVersions(&worker.Status, says)
			worker.Status.NodeGroups, worker.Status.GPUs = workercluster.CapacityOf(&test.snapshot, accelerators.Table{})
			check.Equal(t, test.groups, len(worker.Status.NodeGroups), "groups of nodes that are shown")
			check.Must(t, s.Hub.Admin.Status().Update(t.Context(), worker))
		})
	}
}
