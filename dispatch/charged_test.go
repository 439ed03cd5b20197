// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/quota"
	"github.com/trainyard/trainyard/test/check"
)

// cpuOnGPURuntime is the demand of a job that asks for cpu, of a runtime with GPUs.
func cpuOnGPURuntime(pods int32, gpus int64) v1alpha1.PodSet {
	four := resource.MustParse("4")
	return v1alpha1.PodSet{
		Name: "node", Role: v1alpha1.RoleTrainer, Count: pods,
		Requests:         corev1.ResourceList{gpu: *resource.NewQuantity(gpus, resource.DecimalSI), corev1.ResourceCPU: four},
		UnmergedRequests: corev1.ResourceList{gpu: resource.MustParse("0"), corev1.ResourceCPU: four},
	}
}

// TestQuotaIsCountedAsCharged: quota counts by what the worker's Kueue charges. As long as nobody knows it, the job is
// not kept off, and the words say that it is assumed.
func TestQuotaIsCountedAsCharged(t *testing.T) {
	const assumed = "; assumed, until a Workload there shows it: Kueue charges only 0 of 16 nvidia.com/gpu"
	nothing := func(f *v1alpha1.KueueFlavor) {
		f.Taints = []corev1.Taint{taint("gpu", "", corev1.TaintEffectNoSchedule)}
	}
	for name, test := range map[string]struct {
		reason string
		basis  quota.Basis
		gpus   flavorQuota
		fits   bool
		want   string // The end of the message.
	}{
		"Assumed":         {"a job that Kueue would admit does not wait", quota.Assumed, flavorQuota{name: "h100"}, true, assumed},
		"Unmerged":        {"Kueue charges no GPU", quota.Unmerged, flavorQuota{name: "h100"}, true, "the only worker on which the job fits"},
		"UnmergedRefused": {"a resource that Kueue does not see needs no flavor", quota.Unmerged, flavorQuota{name: "h100", change: nothing}, true, "the only worker on which the job fits"},
		"Merged":          {"Kueue charges the GPUs", quota.Merged, flavorQuota{name: "h100", nominal: 8}, false, "has 10 of the 16 nvidia.com/gpu that the job needs, flavor h100; it never has more than 10"},
		"MergedFits":      {"nothing is assumed", quota.Merged, flavorQuota{name: "h100", nominal: 16}, true, "the only worker on which the job fits"},
	} {
		t.Run(name, func(t *testing.T) {
			job := inQueue(cpuOnGPURuntime(2, 8))
			workers := []Worker{{Name: "w", Nodes: NewNodes(nil).WithQuota(teamQuota(test.gpus).On(test.basis), true), Revision: 1}}
			decision := Decide(job, nil, workers)
			if (decision.Cluster != "") != test.fits || !strings.HasSuffix(decision.Message, test.want) {
				t.Errorf("Decide(): %s\n got %+v\nwant %q at the end", test.reason, decision, test.want)
			}
			line := Explain(job, nil, workers)[0]
			if (line.Reason == v1alpha1.ReasonFits) != test.fits || strings.Contains(line.Message, "assumed") != (test.basis == quota.Assumed) {
				t.Errorf("Explain(): %s: %+v", test.reason, line)
			}
		})
	}
}

// TestChargeCountsAsCharged: what placed jobs will reserve counts by what the Kueue charges, before and after they are
// held back or charged again.
func TestChargeCountsAsCharged(t *testing.T) {
	other := []v1alpha1.PodSet{podSet(8, 1)}
	for basis, free := range map[quota.Basis]bool{quota.Assumed: true, quota.Unmerged: true, quota.Merged: false} {
		whole := NewNodes(nil).WithQuota(teamQuota(flavorQuota{name: "h100", nominal: 8}).On(basis), true)
		for name, nodes := range map[string]*Nodes{
			"Charge": whole.Charge(teamQueue, []v1alpha1.PodSet{cpuOnGPURuntime(1, 8)}),
			"Hold":   whole.In(teamQueue).Hold([]v1alpha1.PodSet{cpuOnGPURuntime(1, 8)}, whole),
			"Twice":  whole.Charge(teamQueue, []v1alpha1.PodSet{podSet(1, 1)}).Charge(teamQueue, []v1alpha1.PodSet{cpuOnGPURuntime(1, 8)}),
		} {
			if lack := nodes.In(teamQueue).Fit(other); (lack == nil) != free {
				t.Errorf("%s on basis %d: the other job fits: %t", name, basis, lack == nil)
			}
		}
	}
}

func TestAssumedWords(t *testing.T) {
	job := inQueue(cpuOnGPURuntime(2, 8))
	job.PodSets[0].UnmergedRequests[corev1.ResourceCPU] = resource.MustParse("6")
	nodes := NewNodes(nil).WithQuota(teamQuota(flavorQuota{name: "h100"}), true)
	got := Explain(job, nil, []Worker{{Name: "w", Nodes: nodes}})[0].Message
	if want := "Kueue charges only 8 of 12 cpu, 0 of 16 nvidia.com/gpu"; !strings.HasSuffix(got, want) {
		t.Errorf("the words say %q, want %q at the end", got, want)
	}
	for name, test := range map[string]struct {
		reason string
		job    Job
		nodes  *Nodes
	}{
		"Ordinary":  {"each Kueue charges the same", inQueue(podSet(1, 1)), nodes},
		"NotQueued": {"quota does not count for it", Job{Namespace: "team", PodSets: job.PodSets}, nodes},
		"NoKueue":   {"quota does not count there", job, NewNodes([]NodeGroup{gpuNodes(2, 8)})},
	} {
		if got := Explain(test.job, nil, []Worker{{Name: "w", Nodes: test.nodes}})[0].Message; strings.Contains(got, "assumed") {
			t.Errorf("%s: %s: %q", name, test.reason, got)
		}
	}
}

func TestBasisOf(t *testing.T) {
	podSets := []v1alpha1.PodSet{podSet(1, 1), cpuOnGPURuntime(2, 8)}
	for name, test := range map[string]struct {
		reason   string
		podSets  []v1alpha1.PodSet
		requests map[corev1.ResourceName]int64
		want     quota.Basis
	}{
		"Merged":      {"the GPUs of the runtime are in it", podSets, map[corev1.ResourceName]int64{gpu: 17, "cpu": 8000}, quota.Merged},
		"Unmerged":    {"they are not", podSets, map[corev1.ResourceName]int64{gpu: 1, "cpu": 8000}, quota.Unmerged},
		"Absent":      {"Kueue lists nothing that is 0", podSets[1:], map[corev1.ResourceName]int64{"cpu": 8000}, quota.Unmerged},
		"Other":       {"it is the Workload of another job, or Kueue transforms resources", podSets, map[corev1.ResourceName]int64{gpu: 4, "cpu": 8000}, quota.Assumed},
		"Unambiguous": {"each Kueue charges the same", podSets[:1], map[corev1.ResourceName]int64{gpu: 1}, quota.Assumed},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, test.want, BasisOf(test.podSets, test.requests), "BasisOf(): %s", test.reason)
		})
	}
}
