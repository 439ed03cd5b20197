// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// ownOn is the demand of a job on workers that have a runtime of their own.
func ownOn(variant Variant, workers ...v1alpha1.ClusterName) *OwnDemand {
	variant.Runtime = `ClusterTrainingRuntime "torch"`
	on := map[v1alpha1.ClusterName]*Variant{}
	for _, worker := range workers {
		on[worker] = &variant
	}
	return NewOwnDemand(on)
}

// TestOwnDemandCounts: on a worker with a runtime of its own, the pods of that runtime count, and elsewhere those of the
// hub's.
func TestOwnDemandCounts(t *testing.T) {
	const ownWords = `counted as the worker's own ClusterTrainingRuntime "torch" makes them`
	large, small := podSet(2, 8), podSet(2, 1)
	for name, tc := range map[string]struct {
		reason   string
		hub      v1alpha1.PodSet
		own      *OwnDemand
		admitted map[v1alpha1.ClusterName][]v1alpha1.PodSet
		want     v1alpha1.ClusterName
		reasonOf string
		words    string
	}{
		"Hub":     {reason: "nothing differs", hub: small, want: "east", reasonOf: v1alpha1.ReasonFits},
		"Larger":  {reason: "the worker's runtime asks for more than is free", hub: small, own: ownOn(Variant{PodSets: []v1alpha1.PodSet{large}}, "east"), reasonOf: v1alpha1.ReasonInsufficientResources, words: ownWords},
		"Smaller": {reason: "the worker's runtime asks for less", hub: large, own: ownOn(Variant{PodSets: []v1alpha1.PodSet{small}}, "east"), want: "east", reasonOf: v1alpha1.ReasonFits, words: ownWords},
		"Elsewhere": {
			reason: "another worker has it", hub: large, own: ownOn(Variant{PodSets: []v1alpha1.PodSet{small}}, "west"), reasonOf: v1alpha1.ReasonInsufficientResources,
		},
		"Admitted": {
			reason: "what the worker's admission makes of the pods counts", hub: large, own: ownOn(Variant{PodSets: []v1alpha1.PodSet{small}}, "east"),
			admitted: map[v1alpha1.ClusterName][]v1alpha1.PodSet{"east": {large}}, reasonOf: v1alpha1.ReasonInsufficientResources, words: "admission",
		},
		"Faulty": {
			reason: "no job like this can run with the worker's runtime", hub: small, own: ownOn(Variant{Fault: "there is no container node"}, "east"),
			reasonOf: v1alpha1.ReasonRuntimeDiffers, words: `the worker has its own ClusterTrainingRuntime "torch", which cannot be used for the job: there is no container node`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := Job{UID: "job", PodSets: []v1alpha1.PodSet{tc.hub}, Own: tc.own, Admitted: tc.admitted}
			workers := []Worker{worker("east", 2, 4)}
			decision := Decide(job, nil, workers)
			check.Equal(t, tc.want, decision.Cluster, "%s: the decision %+v", tc.reason, decision)
			line := Explain(job, nil, workers)[0]
			check.Equal(t, tc.reasonOf, line.Reason, "%s: Explain", tc.reason)
			check.Equal(t, tc.reasonOf, Nearest(job, nil, workers).Reason, "%s: Nearest", tc.reason)
			for _, message := range []string{line.Message, decision.Message} {
				if tc.words != "" && !strings.Contains(message, tc.words) || strings.Contains(message, ownWords) != (tc.words == ownWords || name == "Admitted") {
					t.Errorf("%s: the words are %q, want %q in them", tc.reason, message, tc.words)
				}
			}
		})
	}
}

// TestOwnGrace: the grace period of the policy counts only where pods get it.
func TestOwnGrace(t *testing.T) {
	grace := &v1alpha1.PodGrace{Seconds: 600, PodSets: []string{"node"}}
	fenced := []Policy{{DispatchPolicy: &v1alpha1.DispatchPolicy{Spec: v1alpha1.DispatchPolicySpec{Failover: v1alpha1.FailoverFenced}}}}
	short := func(w *Worker) { w.LongestGrace = time.Minute }
	workers := []Worker{worker("east", 2, 8, short)}
	job := Job{UID: "job", PodSets: []v1alpha1.PodSet{podSet(1, 1)}, Grace: grace}
	check.Equal(t, v1alpha1.ReasonGraceTooLong, Explain(job, fenced, workers)[0].Reason, "with the hub's runtime")
	job.Own = ownOn(Variant{PodSets: job.PodSets}, "east")
	check.Equal(t, v1alpha1.ReasonFits, Explain(job, fenced, workers)[0].Reason, "the worker's runtime has a grace period of its own")
	job.Grace, job.Own = nil, ownOn(Variant{PodSets: job.PodSets, Grace: grace}, "east")
	check.Equal(t, v1alpha1.ReasonGraceTooLong, Explain(job, fenced, workers)[0].Reason, "only the worker's runtime has none")
}

// TestOwnTopology: a domain is searched for the pods of the worker's runtime.
func TestOwnTopology(t *testing.T) {
	rack := func(name string) NodeGroup {
		return NodeGroup{Labels: map[string]string{"rack": name}, Free: Resources{gpu: 8}, Count: 2}
	}
	w := Worker{Name: "east", Nodes: NewNodes([]NodeGroup{rack("a"), rack("b")})}
	job := Job{UID: "job", PodSets: []v1alpha1.PodSet{podSet(4, 8)}, Topology: &Topology{Label: "rack", Required: true}}
	check.Equal(t, "", Decide(job, nil, []Worker{w}).Cluster, "no rack has four nodes")
	job.Own = ownOn(Variant{PodSets: []v1alpha1.PodSet{podSet(2, 8)}}, "east")
	decision := Decide(job, nil, []Worker{w})
	if decision.Cluster != "east" || decision.Domain == nil {
		t.Fatalf("the two pods of the worker's runtime have no rack: %+v", decision)
	}
	sets := job.PodSetsIn("east", decision.Domain)
	check.Equal(t, decision.Domain.Value, sets[0].NodeSelector["rack"], "the rack that the pods select")
	check.Equal(t, int32(2), sets[0].Count, "pods")
}

// TestPreemptionCountsOwnDemand: jobs are stopped only where their room is enough for the pods of the worker's runtime.
func TestPreemptionCountsOwnDemand(t *testing.T) {
	site := tenants{
		nodes: []NodeGroup{{Free: Resources{gpu: 8, corev1.ResourceCPU: 8000}, Count: 1}},
		jobs:  []tenant{{Victim: Victim{UID: "victim"}, takes: []Resources{{gpu: 8}}}},
	}
	policy := Policy{DispatchPolicy: &v1alpha1.DispatchPolicy{Spec: v1alpha1.DispatchPolicySpec{Preemption: v1alpha1.PreemptLowerPriority}}}
	for want, gpus := range map[bool]int64{true: 8, false: 9} {
		job := Job{UID: "job", Priority: 1, PodSets: []v1alpha1.PodSet{podSet(1, 4)}, Own: ownOn(Variant{PodSets: []v1alpha1.PodSet{podSet(1, gpus)}}, "east")}
		_, got := Preempt(job, []Policy{policy}, []Worker{site.worker("east")}, func(v1alpha1.ClusterName) Occupancy { return site })
		check.Equal(t, want, got, "with %d GPUs on the worker, Preempt finds victims", gpus)
	}
}

// TestOwnDemandKinds: jobs are of one kind if all workers make equal pods of them, whatever else is in the runtimes.
func TestOwnDemandKinds(t *testing.T) {
	kind := func(own *OwnDemand) string { return Job{UID: "job", Own: own}.Kind() }
	one := func() Variant { return Variant{Digest: "a", PodSets: []v1alpha1.PodSet{podSet(2, 8)}} }
	base := kind(ownOn(one(), "east", "west"))
	same := one()
	same.Digest = "b"
	same.PodSets[0].Requests[gpu] = resource.MustParse("8000m")
	check.Equal(t, base, kind(ownOn(same, "west", "east")), "another image, another notation")
	for name, other := range map[string]*OwnDemand{
		"none": nil, "one worker": ownOn(one(), "east"), "other pods": ownOn(Variant{PodSets: []v1alpha1.PodSet{podSet(3, 8)}}, "east", "west"),
		"faulty": ownOn(Variant{Fault: "x"}, "east", "west"), "grace": ownOn(Variant{PodSets: one().PodSets, Grace: &v1alpha1.PodGrace{Seconds: 1}}, "east", "west"),
	} {
		if kind(other) == base {
			t.Errorf("%s: the job is of the same kind", name)
		}
	}
	check.Equal(t, 1, len(ownOn(one(), "east", "west").Variants()), "different demands of two workers with one runtime")
}
