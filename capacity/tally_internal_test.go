// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	testcheck "github.com/trainyard/trainyard/test/check"
)

// A function of this package is called check.
var must, differ = testcheck.Must, testcheck.Diff

func list(pairs ...string) corev1.ResourceList {
	resources := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		resources[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return resources
}

func newNode(name string, allocatable corev1.ResourceList, status corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			Allocatable: allocatable, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}},
		},
	}
}

func newPod(name, node string, phase corev1.PodPhase, requests corev1.ResourceList, gang ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Requests: requests}}},
		},
		Status: corev1.PodStatus{Phase: phase},
	}
	if len(gang) == 2 {
		pod.Labels = map[string]string{jobsetv1alpha2.JobSetNameKey: gang[0], jobsetv1alpha2.ReplicatedJobNameKey: gang[1]}
	}
	return pod
}

// TestRequests checks that stripped pods count as the scheduler counts them.
func TestRequests(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	container := func(policy *corev1.ContainerRestartPolicy, pairs ...string) corev1.Container {
		return corev1.Container{
			Name: fmt.Sprint(pairs), RestartPolicy: policy, Image: "image",
			Resources: corev1.ResourceRequirements{Requests: list(pairs...), Limits: list("cpu", "99")},
		}
	}
	cases := map[string]struct {
		reason string
		spec   corev1.PodSpec
		status corev1.PodStatus
		want   Resources
	}{
		"Nothing": {reason: "A pod is one pod.", want: Resources{"pods": 1}},
		"Sum": {
			reason: "Containers run together; cpu is in thousandths.",
			spec:   corev1.PodSpec{Containers: []corev1.Container{container(nil, "cpu", "1500m", "memory", "1Ki"), container(nil, "cpu", "1", "nvidia.com/gpu", "8")}},
			want:   Resources{"cpu": 2500, "memory": 1024, "nvidia.com/gpu": 8, "pods": 1},
		},
		"Init": {
			reason: "Init containers run one after the other, before.",
			spec: corev1.PodSpec{
				InitContainers: []corev1.Container{container(nil, "cpu", "4"), container(nil, "memory", "1Ki")},
				Containers:     []corev1.Container{container(nil, "cpu", "1", "memory", "3Ki")},
			},
			want: Resources{"cpu": 4000, "memory": 3072, "pods": 1},
		},
		"Sidecar": {
			reason: "A restartable init container runs beside everything after it.",
			spec: corev1.PodSpec{
				InitContainers: []corev1.Container{container(&always, "cpu", "1"), container(nil, "cpu", "4")},
				Containers:     []corev1.Container{container(nil, "cpu", "2")},
			},
			want: Resources{"cpu": 5000, "pods": 1},
		},
		"Overhead": {
			reason: "The runtime class costs too.",
			spec:   corev1.PodSpec{Overhead: list("cpu", "250m"), Containers: []corev1.Container{container(nil, "cpu", "1")}},
			want:   Resources{"cpu": 1250, "pods": 1},
		},
		"PodLevel": {
			reason: "Requests of the pod itself win.",
			spec: corev1.PodSpec{
				Resources:  &corev1.ResourceRequirements{Requests: list("cpu", "7")},
				Containers: []corev1.Container{container(nil, "cpu", "1")},
			},
			want: Resources{"cpu": 7000, "pods": 1},
		},
		"Resized": {
			reason: "While a pod shrinks it still has what it had.",
			spec:   corev1.PodSpec{Containers: []corev1.Container{container(nil, "cpu", "1")}},
			status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
				Name: "[cpu 1]", AllocatedResources: list("cpu", "1"),
				Resources: &corev1.ResourceRequirements{Requests: list("cpu", "3")},
			}}},
			want: Resources{"cpu": 3000, "pods": 1},
		},
		"PodLevelShrinks": {
			reason: "A pod that shrinks as a whole still has what it had, until the kubelet has carried that out.",
			spec: corev1.PodSpec{
				Resources: &corev1.ResourceRequirements{Requests: list("cpu", "1")}, Overhead: list("cpu", "250m"),
				Containers: []corev1.Container{container(nil, "cpu", "500m")},
			},
			status: corev1.PodStatus{
				AllocatedResources: list("cpu", "1"), Resources: &corev1.ResourceRequirements{Requests: list("cpu", "3")},
			},
			want: Resources{"cpu": 3250, "pods": 1},
		},
		"PodLevelInfeasible": {
			reason: "A size that the node never has does not count.",
			spec:   corev1.PodSpec{Resources: &corev1.ResourceRequirements{Requests: list("cpu", "500")}},
			status: corev1.PodStatus{
				AllocatedResources: list("cpu", "1"), Resources: &corev1.ResourceRequirements{Requests: list("cpu", "1")},
				Conditions: []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible}},
			},
			want: Resources{"cpu": 1000, "pods": 1},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			full := &corev1.Pod{Spec: tc.spec, Status: tc.status}
			stripped, err := StripPod(full.DeepCopy())
			must(t, err)
			for form, pod := range map[string]*corev1.Pod{"full": full, "stripped": stripped.(*corev1.Pod)} {
				differ(t, tc.want, requestsOf(pod), fmt.Sprintf("%s\n%s pod", tc.reason, form))
			}
		})
	}
}

func TestStrip(t *testing.T) {
	pod := newPod("a", "n", corev1.PodRunning, list("cpu", "1"), "gang", "node")
	pod.UID, pod.ResourceVersion, pod.Annotations, pod.ManagedFields = "u", "7", map[string]string{"a": "b"}, []metav1.ManagedFieldsEntry{{}}
	pod.Labels["app"], pod.Spec.ServiceAccountName, pod.Spec.Containers[0].Env = "x", "sa", []corev1.EnvVar{{Name: "TOKEN", Value: "secret"}}
	pod.Status.PodIP = "10.0.0.1"
	want := newPod("a", "n", corev1.PodRunning, list("cpu", "1"), "gang", "node")
	want.UID, want.ResourceVersion = "u", "7"
	if got, err := StripPod(pod); err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("pod: %v -want +got:\n%s", err, cmp.Diff(want, got))
	}

	node := newNode("n", list("cpu", "8"), corev1.ConditionTrue)
	node.Labels, node.Annotations, node.Spec.PodCIDR = map[string]string{"zone": "a"}, map[string]string{"a": "b"}, "10.0.0.0/24"
	node.Status.Images, node.Status.Capacity = []corev1.ContainerImage{{}}, list("cpu", "9")
	node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeDiskPressure})
	wantNode := newNode("n", list("cpu", "8"), corev1.ConditionTrue)
	wantNode.Labels = map[string]string{"zone": "a"}
	if got, err := StripNode(node); err != nil || cmp.Diff(wantNode, got) != "" {
		t.Errorf("node: %v -want +got:\n%s", err, cmp.Diff(wantNode, got))
	}

	tombstone := toolscache.DeletedFinalStateUnknown{Key: "a"}
	for _, strip := range []toolscache.TransformFunc{StripPod, StripNode} {
		if got, err := strip(tombstone); err != nil || cmp.Diff(tombstone, got) != "" {
			t.Errorf("tombstone: %v, %v", got, err)
		}
	}
}

// TestInventory follows one worker through its possible events.
func TestInventory(t *testing.T) {
	i := NewTally()
	changes := 0
	cancel := i.Subscribe(func() { changes++ })
	gang := types.NamespacedName{Namespace: "ns", Name: "job"}
	steps := []struct {
		name    string
		event   func()
		used    Resources
		pods    GangPods
		changed bool
	}{
		{"a pod before its node", func() { i.setPod(newPod("p0", "n", corev1.PodRunning, list("cpu", "1"), "job", "node")) }, nil, GangPods{Bound: 1}, true},
		{"the node", func() { i.setNode(newNode("n", list("cpu", "8"), corev1.ConditionTrue)) }, Resources{"cpu": 1000, "pods": 1}, GangPods{Bound: 1}, true},
		{"the node's heartbeat", func() { i.setNode(newNode("n", list("cpu", "8"), corev1.ConditionTrue)) }, Resources{"cpu": 1000, "pods": 1}, GangPods{Bound: 1}, false},
		{"an unbound pod", func() { i.setPod(newPod("p1", "", corev1.PodPending, list("cpu", "2"), "job", "node")) }, Resources{"cpu": 1000, "pods": 1}, GangPods{Bound: 1}, false},
		{"it is bound", func() { i.setPod(newPod("p1", "n", corev1.PodPending, list("cpu", "2"), "job", "node")) }, Resources{"cpu": 3000, "pods": 2}, GangPods{Bound: 2}, true},
		{"it runs", func() { i.setPod(newPod("p1", "n", corev1.PodRunning, list("cpu", "2"), "job", "node")) }, Resources{"cpu": 3000, "pods": 2}, GangPods{Bound: 2}, false},
		{"it is being deleted", func() {
			pod := newPod("p1", "n", corev1.PodRunning, list("cpu", "2"), "job", "node")
			pod.DeletionTimestamp = ptr.To(metav1.Now())
			i.setPod(pod)
		}, Resources{"cpu": 3000, "pods": 2}, GangPods{Bound: 2}, false},
		{"it succeeds", func() { i.setPod(newPod("p1", "n", corev1.PodSucceeded, list("cpu", "2"), "job", "node")) }, Resources{"cpu": 1000, "pods": 1}, GangPods{Bound: 1, Succeeded: 1}, true},
		{"the other fails", func() { i.setPod(newPod("p0", "n", corev1.PodFailed, list("cpu", "1"), "job", "node")) }, Resources{}, GangPods{Succeeded: 1}, true},
		{"a pod of nobody", func() { i.setPod(newPod("q", "n", corev1.PodRunning, list("cpu", "4"))) }, Resources{"cpu": 4000, "pods": 1}, GangPods{Succeeded: 1}, true},
		{"it succeeds too", func() { i.setPod(newPod("q", "n", corev1.PodSucceeded, list("cpu", "4"))) }, Resources{}, GangPods{Succeeded: 1}, true},
		{"it is deleted", func() { i.deletePod(types.NamespacedName{Namespace: "ns", Name: "q"}) }, Resources{}, GangPods{Succeeded: 1}, false},
		{"the successful one is deleted", func() { i.deletePod(types.NamespacedName{Namespace: "ns", Name: "p1"}) }, Resources{}, GangPods{}, true},
		{"the failed one is deleted", func() { i.deletePod(types.NamespacedName{Namespace: "ns", Name: "p0"}) }, Resources{}, GangPods{}, false},
		{"the node goes", func() { i.deleteNode("n") }, nil, GangPods{}, true},
	}
	for _, step := range steps {
		before, told := i.Snapshot(), changes
		frozen := printed(before)
		step.event()
		after := i.Snapshot()
		if (before != after) != step.changed || (changes > told) != step.changed {
			t.Errorf("%s: another snapshot %t, told %t, want %t", step.name, before != after, changes > told, step.changed)
		}
		if printed(before) != frozen {
			t.Errorf("%s: the snapshot before has changed", step.name)
		}
		var used Resources
		if len(after.Nodes) == 1 {
			used = after.Nodes[0].Used
		}
		differ(t, step.used, used, fmt.Sprintf("%s: used", step.name))
		if len(after.Nodes) == 1 {
			// All used resources except the resources of the pod "q" belong to the gang.
			want := map[types.NamespacedName]Resources{gang: step.used}
			if step.pods.Bound == 0 {
				want = nil
			}
			differ(t, want, after.Nodes[0].Gangs, fmt.Sprintf("%s: gangs on the node", step.name))
		}
		differ(t, step.pods, after.Gangs[gang]["node"], fmt.Sprintf("%s: pods of the gang", step.name))
	}
	l := &i.locked
	if len(l.nodes)+len(l.pods)+len(l.gangs) != 0 {
		t.Errorf("left behind: %d nodes, %d pods, %d gangs", len(l.nodes), len(l.pods), len(l.gangs))
	}
	cancel()
	told := changes
	i.setNode(newNode("n", nil, corev1.ConditionTrue))
	if changes != told {
		t.Error("told after cancel")
	}
}

// printed returns all content of a snapshot as a text.
func printed(s *Snapshot) string {
	text := fmt.Sprint(s.Gangs)
	for _, node := range s.Nodes {
		text += fmt.Sprintf("\n%+v", *node)
	}
	return text
}

func TestSchedulable(t *testing.T) {
	cases := map[string]struct {
		reason string
		ready  corev1.ConditionStatus
		cordon bool
		want   bool
	}{
		"Ready":    {"It takes pods.", corev1.ConditionTrue, false, true},
		"NotReady": {"Its kubelet says no.", corev1.ConditionFalse, false, false},
		"Lost":     {"Its kubelet says nothing.", corev1.ConditionUnknown, false, false},
		"Cordoned": {"An admin says no.", corev1.ConditionTrue, true, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			i, node := NewTally(), newNode("n", nil, tc.ready)
			node.Spec.Unschedulable = tc.cordon
			i.NodeHandler().OnAdd(node, true)
			if got := i.Snapshot().Nodes[0].Schedulable; got != tc.want {
				t.Errorf("%s\nSchedulable = %t", tc.reason, got)
			}
			i.NodeHandler().OnDelete(toolscache.DeletedFinalStateUnknown{Key: "n", Obj: node})
			if got := len(i.Snapshot().Nodes); got != 0 {
				t.Errorf("%d nodes after a tombstone", got)
			}
		})
	}
}

// TestInventoryIsExact checks that after events in any order, the sums are the sums of the objects that exist.
func TestInventoryIsExact(t *testing.T) {
	phases := []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed}
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		i, pods, nodes := NewTally(), map[string]*corev1.Pod{}, map[string]*corev1.Node{}
		for range 300 {
			name, node := fmt.Sprint("p", random.IntN(20)), fmt.Sprint("n", random.IntN(5))
			switch random.IntN(6) {
			case 0:
				delete(pods, name)
				i.deletePod(types.NamespacedName{Namespace: "ns", Name: name})
			case 1:
				delete(nodes, node)
				i.deleteNode(node)
			case 2:
				nodes[node] = newNode(node, list("cpu", fmt.Sprint(1+random.IntN(3))), corev1.ConditionTrue)
				i.setNode(nodes[node])
			default:
				if random.IntN(4) == 0 {
					node = ""
				}
				pods[name] = newPod(name, node, phases[random.IntN(len(phases))], list("cpu", fmt.Sprint(random.IntN(3))),
					fmt.Sprint("gang", random.IntN(2)), fmt.Sprint("job", random.IntN(2)))
				i.setPod(pods[name])
			}
			if random.IntN(3) == 0 {
				i.Snapshot()
			}
		}
		fresh := NewTally()
		for _, node := range nodes {
			fresh.setNode(node)
		}
		for _, pod := range pods {
			fresh.setPod(pod)
		}
		want, got := *fresh.Snapshot(), *i.Snapshot()
		want.Generation = got.Generation
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d: -want +got:\n%s", seed, diff)
		}
		if diff := cmp.Diff(gangsByHand(pods, nodes), gangsOf(got.Nodes), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("seed %d: gangs on nodes: -counted by hand +got:\n%s", seed, diff)
		}
	}
}

// gangsByHand counts what pods of JobSets use on existing nodes, without an inventory.
func gangsByHand(pods map[string]*corev1.Pod, nodes map[string]*corev1.Node) map[string]map[types.NamespacedName]Resources {
	counted := map[string]map[types.NamespacedName]Resources{}
	for _, pod := range pods {
		over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if over || nodes[pod.Spec.NodeName] == nil {
			continue
		}
		gang := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[jobsetv1alpha2.JobSetNameKey]}
		if counted[pod.Spec.NodeName] == nil {
			counted[pod.Spec.NodeName] = map[types.NamespacedName]Resources{}
		}
		sum := counted[pod.Spec.NodeName][gang]
		if sum == nil {
			sum = Resources{}
			counted[pod.Spec.NodeName][gang] = sum
		}
		sum.add(requestsOf(pod), 1)
	}
	return counted
}

func gangsOf(nodes []*NodeState) map[string]map[types.NamespacedName]Resources {
	gangs := map[string]map[types.NamespacedName]Resources{}
	for _, node := range nodes {
		if node.Gangs != nil {
			gangs[node.Name] = node.Gangs
		}
	}
	return gangs
}

func BenchmarkInventory(b *testing.B) {
	i := NewTally()
	for n := range 1000 {
		i.setNode(newNode(fmt.Sprint("n", n), list("cpu", "96", "nvidia.com/gpu", "8"), corev1.ConditionTrue))
	}
	pods := make([]*corev1.Pod, 0, 8000)
	for n := range cap(pods) {
		pods = append(pods, newPod(fmt.Sprint("p", n), fmt.Sprint("n", n%1000), corev1.PodRunning, list("nvidia.com/gpu", "1"), "gang", "node"))
		i.setPod(pods[n])
	}
	b.Run("Event", func(b *testing.B) {
		for n := range b.N {
			pod := pods[n%len(pods)]
			pod.Status.Phase = []corev1.PodPhase{corev1.PodSucceeded, corev1.PodRunning}[n/len(pods)%2]
			i.setPod(pod)
		}
	})
	b.Run("Snapshot", func(b *testing.B) {
		for n := range b.N {
			pod := pods[n%len(pods)]
			pod.Status.Phase = []corev1.PodPhase{corev1.PodSucceeded, corev1.PodRunning}[n/len(pods)%2]
			i.setPod(pod)
			i.Snapshot()
		}
	})
}
