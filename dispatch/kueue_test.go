// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/quota"
	"github.com/trainyard/trainyard/test/check"
)

// teamQueue is the LocalQueue of the tests.
var teamQueue = types.NamespacedName{Namespace: "team", Name: "main"}

// inQueue is a job of the queue.
func inQueue(podSets ...v1alpha1.PodSet) Job {
	return Job{UID: "job", Name: "job", Namespace: "team", Labels: map[string]string{v1alpha1.LabelLocalQueue: "main"}, PodSets: podSets}
}

// flavorQuota is the GPU quota of a flavor, of which some is reserved.
type flavorQuota struct {
	name           string
	nominal, taken int64
	change         func(*v1alpha1.KueueFlavor)
}

// teamQuota is ClusterQueue team-a with these flavors and quota for any CPU, and ClusterQueue team-b in the same
// cohort, which lends 2 GPUs of the first flavor.
func teamQuota(flavors ...flavorQuota) *quota.Tree {
	gpus := v1alpha1.KueueResourceGroup{Resources: []corev1.ResourceName{gpu}}
	counted := &v1alpha1.KueueQuota{LocalQueues: []v1alpha1.KueueLocalQueue{{Namespace: "team", Name: "main", ClusterQueue: "team-a"}}}
	a := v1alpha1.KueueClusterQueue{Name: "team-a", Cohort: "teams"}
	for _, f := range flavors {
		gpus.Flavors = append(gpus.Flavors, v1alpha1.KueueFlavorQuotas{
			Name: f.name, Quotas: []v1alpha1.KueueResourceQuota{{Resource: gpu, Nominal: f.nominal}},
		})
		a.Used = append(a.Used, v1alpha1.KueueAmount{Flavor: f.name, Resource: gpu, Amount: f.taken})
		flavor := v1alpha1.KueueFlavor{Name: f.name}
		if f.change != nil {
			f.change(&flavor)
		}
		counted.Flavors = append(counted.Flavors, flavor)
	}
	cpus := v1alpha1.KueueResourceGroup{Resources: []corev1.ResourceName{corev1.ResourceCPU}, Flavors: []v1alpha1.KueueFlavorQuotas{{
		Name: "cpus", Quotas: []v1alpha1.KueueResourceQuota{{Resource: corev1.ResourceCPU, Nominal: 1 << 40}},
	}}}
	counted.Flavors = append(counted.Flavors, v1alpha1.KueueFlavor{Name: "cpus"})
	a.Groups = []v1alpha1.KueueResourceGroup{cpus, gpus}
	b := v1alpha1.KueueClusterQueue{Name: "team-b", Cohort: "teams", Groups: []v1alpha1.KueueResourceGroup{{
		Resources: []corev1.ResourceName{gpu},
		Flavors:   []v1alpha1.KueueFlavorQuotas{{Name: flavors[0].name, Quotas: []v1alpha1.KueueResourceQuota{{Resource: gpu, Nominal: 2}}}},
	}}}
	counted.ClusterQueues = []v1alpha1.KueueClusterQueue{a, b}
	return quota.New(counted)
}

func flavorLabels(labels map[string]string) func(*v1alpha1.KueueFlavor) {
	return func(f *v1alpha1.KueueFlavor) { f.Labels = labels }
}

func TestQueueOf(t *testing.T) {
	for name, test := range map[string]struct {
		reason           string
		label            string
		onHub, nominated bool
		worker, policy   v1alpha1.WorkerQueue
		want             string
	}{
		"NoLabel":        {reason: "a job without a queue comes into none"},
		"Label":          {reason: "the hub's Kueue has no part in it", label: "main", want: "main"},
		"Gate":           {reason: "the label names a queue of the hub", label: "main", onHub: true},
		"GateFromJob":    {reason: "the policy says that the worker has the queue too", label: "main", onHub: true, policy: "FromJob", want: "main"},
		"FromNoLabel":    {reason: "there is nothing to take from the job", policy: "FromJob"},
		"None":           {reason: "the policy says so", label: "main", policy: "None"},
		"Named":          {reason: "the policy names the queue", label: "main", policy: "gpus", want: "gpus"},
		"NamedForAll":    {reason: "also of a job without a label", policy: "gpus", want: "gpus"},
		"Worker":         {reason: "the worker's setting wins", label: "main", worker: "local", policy: "gpus", want: "local"},
		"WorkerNone":     {reason: "the worker's setting wins", label: "main", worker: "None", policy: "gpus"},
		"WorkerFromJob":  {reason: "the worker's setting wins", label: "main", onHub: true, worker: "FromJob", policy: "None", want: "main"},
		"Nominated":      {reason: "MultiKueue brings the job there", label: "main", nominated: true, worker: "local", want: "main"},
		"NominatedOnHub": {reason: "MultiKueue brings the job there", label: "main", nominated: true, onHub: true, want: "main"},
	} {
		t.Run(name, func(t *testing.T) {
			job := Job{
				Namespace: "team", Labels: map[string]string{v1alpha1.LabelLocalQueue: test.label}, WorkerQueue: test.policy,
				QueuedOnHub: test.onHub, Nominated: test.nominated,
			}
			want := types.NamespacedName{}
			if test.want != "" {
				want = types.NamespacedName{Namespace: "team", Name: test.want}
			}
			check.Equal(t, want, QueueOf(&job, test.worker), "QueueOf(): %s", test.reason)
		})
	}
}

func TestFitsQuota(t *testing.T) {
	tainted := func(f *v1alpha1.KueueFlavor) {
		f.Taints = []corev1.Taint{taint("spot", "", corev1.TaintEffectNoSchedule)}
	}
	tolerated := func(f *v1alpha1.KueueFlavor) {
		tainted(f)
		f.Tolerations = []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}}
	}
	h100, a100 := map[string]string{"gpu": "h100"}, map[string]string{"gpu": "a100"}
	for name, test := range map[string]struct {
		reason  string
		flavors []flavorQuota
		podSets []v1alpha1.PodSet
		want    string // The message. Empty: the job fits.
	}{
		"Fits":     {reason: "its own quota is enough", flavors: []flavorQuota{{name: "h100", nominal: 8}}, podSets: []v1alpha1.PodSet{podSet(8, 1)}},
		"Borrows":  {reason: "the cohort lends", flavors: []flavorQuota{{name: "h100", nominal: 8}}, podSets: []v1alpha1.PodSet{podSet(10, 1)}},
		"NoLimits": {reason: "one pod may be larger than any node", flavors: []flavorQuota{{name: "h100", nominal: 64}}, podSets: []v1alpha1.PodSet{podSet(1, 64)}},
		"Lacks": {
			reason:  "the message has what there is and what is needed",
			flavors: []flavorQuota{{name: "h100", nominal: 8, taken: 6}}, podSets: []v1alpha1.PodSet{podSet(2, 4)},
			want: "ClusterQueue team-a has 4 of the 8 nvidia.com/gpu that the job needs, flavor h100",
		},
		"Never": {
			reason:  "the message says that waiting does not help",
			flavors: []flavorQuota{{name: "h100", nominal: 8, taken: 6}}, podSets: []v1alpha1.PodSet{podSet(2, 8)},
			want: "ClusterQueue team-a has 4 of the 16 nvidia.com/gpu that the job needs, flavor h100; it never has more than 10",
		},
		"NextFlavor": {
			reason:  "the first flavor with enough is taken",
			flavors: []flavorQuota{{name: "h100", nominal: 4, taken: 4}, {name: "a100", nominal: 8}}, podSets: []v1alpha1.PodSet{podSet(4, 2)},
		},
		"NotSplit": {
			reason:  "all pods of a PodSet get one flavor",
			flavors: []flavorQuota{{name: "h100", nominal: 4}, {name: "a100", nominal: 4}}, podSets: []v1alpha1.PodSet{podSet(8, 1)},
			want: "ClusterQueue team-a has 6 of the 8 nvidia.com/gpu that the job needs, flavor h100; it never has more than 6",
		},
		"PodSetsApart": {
			reason:  "PodSets may get different flavors",
			flavors: []flavorQuota{{name: "h100", nominal: 4}, {name: "a100", nominal: 4}},
			podSets: []v1alpha1.PodSet{podSet(1, 6, named("a", v1alpha1.RoleTrainer)), podSet(1, 4, named("b", v1alpha1.RoleTrainer))},
		},
		"PhasesTogether": {
			reason:  "Kueue reserves the quota of an initializer together with that of the other pods",
			flavors: []flavorQuota{{name: "h100", nominal: 8}},
			podSets: []v1alpha1.PodSet{podSet(1, 4, named("dataset-initializer", "dataset-initializer")), podSet(1, 8)},
			want:    "node: ClusterQueue team-a has 10 of the 12 nvidia.com/gpu that the job needs, flavor h100; it never has more than 10",
		},
		"Selector": {
			reason:  "a flavor with another value of the label does not match",
			flavors: []flavorQuota{{name: "h100", nominal: 8, change: flavorLabels(h100)}, {name: "a100", nominal: 2, change: flavorLabels(a100)}},
			podSets: []v1alpha1.PodSet{podSet(1, 4, onNodes(a100))},
			want:    "ClusterQueue team-a has 2 of the 4 nvidia.com/gpu that the job needs, flavor a100; it never has more than 2",
		},
		"OtherSelector": {
			reason:  "a label that no flavor has excludes none",
			flavors: []flavorQuota{{name: "h100", nominal: 8, change: flavorLabels(h100)}},
			podSets: []v1alpha1.PodSet{podSet(1, 4, onNodes(map[string]string{"zone": "a"}))},
		},
		"Affinity": {
			reason:  "of a node affinity that is alone what is about the flavor's labels counts",
			flavors: []flavorQuota{{name: "h100", nominal: 8, change: flavorLabels(h100)}},
			podSets: []v1alpha1.PodSet{podSet(1, 4, affinity(expression("gpu", corev1.NodeSelectorOpNotIn, "h100")))},
			want:    "no flavor of ClusterQueue team-a takes its pods: flavor h100 does not match its nodeAffinity",
		},
		"AffinityOrElse": {
			reason:  "a term about other labels is true for any flavor",
			flavors: []flavorQuota{{name: "h100", nominal: 8, change: flavorLabels(h100)}},
			podSets: []v1alpha1.PodSet{podSet(1, 4, affinity(
				expression("gpu", corev1.NodeSelectorOpNotIn, "h100"), expression("zone", corev1.NodeSelectorOpIn, "a")))},
		},
		"Taint": {
			reason:  "the pods must tolerate the taints of the flavor",
			flavors: []flavorQuota{{name: "spot", nominal: 8, change: tainted}}, podSets: []v1alpha1.PodSet{podSet(1, 4)},
			want: "no flavor of ClusterQueue team-a takes its pods: flavor spot has taint spot:NoSchedule",
		},
		"Toleration": {reason: "Kueue adds the tolerations of the flavor", flavors: []flavorQuota{{name: "spot", nominal: 8, change: tolerated}}, podSets: []v1alpha1.PodSet{podSet(1, 4)}},
		"UncoveredResource": {
			reason:  "Kueue admits no job that requests what its queue does not have",
			flavors: []flavorQuota{{name: "h100", nominal: 8}},
			podSets: []v1alpha1.PodSet{podSet(1, 4, requests(corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}))},
			want:    "ClusterQueue team-a has no quota of memory, which the job requests",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			nodes := NewNodes(nil).WithQuota(teamQuota(test.flavors...), true).In(teamQueue)
			if lack := nodes.Fit(test.podSets); lack != nil {
				got = lack.Message
			}
			if got != test.want {
				t.Errorf("Fit(): %s\n got %q\nwant %q", test.reason, got, test.want)
			}
		})
	}
}

// TestQuotaAndNodes: which of the two counts for which job.
func TestQuotaAndNodes(t *testing.T) {
	tree := teamQuota(flavorQuota{name: "h100", nominal: 8, taken: 4}) // 6 are available, 2 of them to borrow.
	worker := func(alone bool, nodes ...NodeGroup) []Worker {
		return []Worker{{Name: "w", Nodes: NewNodes(nodes).WithQuota(tree, alone), Revision: 1}}
	}
	outside := Job{UID: "other", Namespace: "team"}
	for name, test := range map[string]struct {
		reason  string
		job     Job
		podSets []v1alpha1.PodSet
		workers []Worker
		want    string // In the message of the worker.
	}{
		"QuotaAlone":        {"autoscaled clusters have no nodes yet", inQueue(), []v1alpha1.PodSet{podSet(6, 1)}, worker(true), "score"},
		"QuotaAloneLacking": {"nodes do not help", inQueue(), []v1alpha1.PodSet{podSet(8, 1)}, worker(true, gpuNodes(4, 8)), "has 6 of the 8"},
		"Both":              {"there are quota and nodes", inQueue(), []v1alpha1.PodSet{podSet(6, 1)}, worker(false, gpuNodes(4, 8)), "score"},
		"NoNodes":           {"quota is not enough", inQueue(), []v1alpha1.PodSet{podSet(6, 1)}, worker(false, gpuNodes(1, 4)), "lacks 2 nvidia.com/gpu"},
		"NoQuota":           {"nodes are not enough", inQueue(), []v1alpha1.PodSet{podSet(8, 1)}, worker(false, gpuNodes(4, 8)), "has 6 of the 8"},
		"Outside":           {"a job that Kueue does not queue needs nodes only", outside, []v1alpha1.PodSet{podSet(8, 1)}, worker(true, gpuNodes(4, 8)), "score"},
		"OutsideLacking":    {"quota does not help such a job", outside, []v1alpha1.PodSet{podSet(2, 1)}, worker(true), "no node that takes pods"},
	} {
		t.Run(name, func(t *testing.T) {
			test.job.PodSets = test.podSets
			lines := Explain(test.job, nil, test.workers)
			if !strings.Contains(lines[0].Message, test.want) {
				t.Errorf("Explain(): %s\n got %q\nwant %q in it", test.reason, lines[0].Message, test.want)
			}
			placed := strings.Contains(test.want, "score")
			if got := Decide(test.job, nil, test.workers); (got.Cluster != "") != placed {
				t.Errorf("Decide(): %+v", got)
			}
			if got := Nearest(test.job, nil, test.workers); (got.Reason == v1alpha1.ReasonFits) != placed {
				t.Errorf("Nearest(): %+v", got)
			}
			if !placed && test.workers[0].Nodes.boundless() && test.workers[0].Nodes.Places(test.podSets) == 0 {
				t.Error("Places() is certain about jobs that it does not know")
			}
		})
	}
	missing := inQueue(podSet(1, 1))
	missing.Labels = map[string]string{v1alpha1.LabelLocalQueue: "typo"}
	if got := Decide(missing, nil, worker(false, gpuNodes(1, 8))); got.Message != "w: the worker has no LocalQueue team/typo" {
		t.Errorf("without the queue: %+v", got)
	}
}

// TestChargeAndHold: placed jobs take quota until Kueue has reserved it, and nobody behind a waiting job takes what it
// needs.
func TestChargeAndHold(t *testing.T) {
	tree := teamQuota(flavorQuota{name: "h100", nominal: 8, taken: 4})
	for _, alone := range []bool{true, false} {
		whole := NewNodes([]NodeGroup{gpuNodes(8, 8)}).WithQuota(tree, alone)
		fits := func(n *Nodes, gpus int32) bool { return n.In(teamQueue).Fit([]v1alpha1.PodSet{podSet(gpus, 1)}) == nil }
		charged := whole.Charge(teamQueue, []v1alpha1.PodSet{podSet(4, 1)})
		if !fits(whole, 6) || fits(whole, 7) || !fits(charged, 2) || fits(charged, 3) {
			t.Errorf("alone %t: a placed job does not take its quota", alone)
		}
		other := types.NamespacedName{Namespace: "other", Name: "main"}
		if !fits(charged.Charge(other, []v1alpha1.PodSet{podSet(2, 1)}), 2) {
			t.Errorf("alone %t: a job in a queue that does not exist takes quota", alone)
		}
		waiting, empty := []v1alpha1.PodSet{podSet(10, 1)}, whole.WithQuota(tree.Empty(), alone)
		if !fits(empty, 10) || fits(empty, 11) {
			t.Errorf("alone %t: the empty worker has other quota", alone)
		}
		for name, held := range map[string]*Nodes{
			"Hold": whole.In(teamQueue).Hold(waiting, empty), "Close": whole.In(teamQueue).Close(waiting, empty),
		} {
			if fits(held, 1) {
				t.Errorf("alone %t: %s leaves quota that the waiting job needs", alone, name)
			}
			outside := held.In(types.NamespacedName{}).Fit([]v1alpha1.PodSet{podSet(8, 1)})
			if name == "Hold" && outside != nil {
				t.Errorf("alone %t: %s takes all nodes: %s", alone, name, outside.Message)
			}
		}
	}
}

// quotaJobs has two jobs of two GPUs each.
type quotaJobs struct{ counted v1alpha1.KueueQuota }

// Victims implements Occupancy.
func (q quotaJobs) Victims() []Victim {
	return []Victim{{UID: "one", Key: types.NamespacedName{Namespace: "team", Name: "one"}}, {UID: "two", Key: types.NamespacedName{Namespace: "team", Name: "two"}}}
}

// Without implements Occupancy.
func (q quotaJobs) Without(victims []types.UID) *Nodes {
	gone := func(job types.NamespacedName) bool { return slices.Contains(victims, types.UID(job.Name)) }
	return NewNodes(nil).WithQuota(quota.New(&q.counted).Without(gone), true)
}

// TestPreemptQuota stops the jobs whose quota is enough.
func TestPreemptQuota(t *testing.T) {
	two := []v1alpha1.KueueAmount{{Flavor: "h100", Resource: gpu, Amount: 2}}
	jobs := quotaJobs{v1alpha1.KueueQuota{
		ClusterQueues: []v1alpha1.KueueClusterQueue{{
			Name: "q", Used: []v1alpha1.KueueAmount{{Flavor: "h100", Resource: gpu, Amount: 4}},
			Groups: []v1alpha1.KueueResourceGroup{{Resources: []corev1.ResourceName{gpu}, Flavors: []v1alpha1.KueueFlavorQuotas{{
				Name: "h100", Quotas: []v1alpha1.KueueResourceQuota{{Resource: gpu, Nominal: 4}},
			}}}},
		}},
		LocalQueues: []v1alpha1.KueueLocalQueue{{Namespace: "team", Name: "main", ClusterQueue: "q"}},
		Flavors:     []v1alpha1.KueueFlavor{{Name: "h100"}},
		Workloads: []v1alpha1.KueueWorkload{
			{Namespace: "team", Job: "one", Queue: "main", ClusterQueue: "q", Used: two}, {Namespace: "team", Job: "two", Queue: "main", ClusterQueue: "q", Used: two},
		},
	}}
	policy := Policy{DispatchPolicy: &v1alpha1.DispatchPolicy{Spec: v1alpha1.DispatchPolicySpec{Preemption: v1alpha1.PreemptLowerPriority}}}
	for gpus, want := range map[int32]int{2: 1, 3: 2, 4: 2, 5: 0} {
		t.Run(fmt.Sprint(gpus), func(t *testing.T) {
			job := inQueue(podSet(gpus, 1))
			job.Priority = 10
			workers := []Worker{{Name: "w", Nodes: jobs.Without(nil)}}
			got, _ := Preempt(job, []Policy{policy}, workers, func(v1alpha1.ClusterName) Occupancy { return jobs })
			check.Equal(t, want, len(got.Victims), "victims: %s", got.Message)
		})
	}
}
