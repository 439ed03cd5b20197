// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// worker returns a worker whose nodes have 8 GPUs, some of them free, with changes.
func worker(name v1alpha1.ClusterName, nodes int, free int64, change ...func(*Worker)) Worker {
	w := Worker{Name: name, Nodes: NewNodes([]NodeGroup{gpuNodes(nodes, free)}), Allocatable: Resources{gpu: 8 * int64(nodes)}}
	for _, c := range change {
		c(&w)
	}
	return w
}

func isNotReady(w *Worker) { w.NotReady = "Unreachable: dial tcp: timeout" }

func isCordoned(w *Worker) { w.Cordoned = true }

func inRegion(region string) func(*Worker) {
	return func(w *Worker) { w.Labels = map[string]string{"region": region} }
}

func labelled(pairs ...string) func(*Worker) {
	return func(w *Worker) {
		w.Labels = map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			w.Labels[pairs[i]] = pairs[i+1]
		}
	}
}

func expressed(text string) func(*v1alpha1.DispatchPolicySpec) {
	return func(spec *v1alpha1.DispatchPolicySpec) { spec.Clusters.Expression = text }
}

func asking(e Expression, p Policy) Policy {
	p.Expression = e
	return p
}

func explained(cluster v1alpha1.ClusterName, reason, message string) v1alpha1.ClusterExplanation {
	return v1alpha1.ClusterExplanation{Cluster: cluster, Reason: reason, Message: message}
}

func scored(cluster v1alpha1.ClusterName, score int32) v1alpha1.ClusterExplanation {
	return v1alpha1.ClusterExplanation{
		Cluster: cluster, Reason: v1alpha1.ReasonFits, Score: ptr.To(score), Message: fmt.Sprintf("score %d: MostAllocated %d", score, score),
	}
}

func TestDecide(t *testing.T) {
	const (
		lacks    = "lacks 16 nvidia.com/gpu on nodes with at least 8 free; at most 2 more such nodes would do; it has room for 0 of 2 pods, 1 node in all"
		down     = "Unreachable: dial tcp: timeout"
		cordon   = "the worker is cordoned (spec.unschedulable)"
		exists   = "a TrainJob of this name exists"
		rejected = "denied by webhook"
		badPin   = `annotation trainyard.dev/clusters: unable to parse requirement: found 'nvme' expected: '('`
	)
	podSets := []v1alpha1.PodSet{podSet(2, 8)}
	excludedFor := func(reason, message string, names ...v1alpha1.ClusterName) map[v1alpha1.ClusterName]Exclusion {
		excluded := map[v1alpha1.ClusterName]Exclusion{}
		for _, name := range names {
			excluded[name] = Exclusion{Reason: reason, Message: message}
		}
		return excluded
	}
	eu := policy("eu", 0, toClusters(matching("region", "eu")))

	type want struct {
		Cluster         v1alpha1.ClusterName
		Reason, Message string
		Policy          string
		Explanation     []v1alpha1.ClusterExplanation
	}
	cases := map[string]struct {
		reason      string
		excluded    map[v1alpha1.ClusterName]Exclusion
		annotations map[string]string
		policies    []Policy
		workers     []Worker
		want        want
	}{
		"NoneRegistered": {
			reason: "somebody has to register a worker",
			want:   want{Reason: v1alpha1.ReasonNoWorkers, Message: "no WorkerCluster is registered"},
		},
		"NoneReady": {
			reason:  "no worker can be asked, and each says why",
			workers: []Worker{worker("b", 9, 8, isNotReady), worker("a", 9, 8, isNotReady)},
			want: want{
				Reason: v1alpha1.ReasonNoWorkers, Message: "no worker is Ready: a: " + down + "; b: " + down,
				Explanation: []v1alpha1.ClusterExplanation{
					explained("a", v1alpha1.ReasonNotReady, down), explained("b", v1alpha1.ReasonNotReady, down),
				},
			},
		},
		"NoPolicy": {
			reason:   "policies exist, and none is for this job",
			policies: []Policy{policy("nlp", 0, forJobs(matching("team", "nlp")))},
			workers:  []Worker{worker("a", 9, 8)},
			want: want{
				Reason: v1alpha1.ReasonNoPolicy, Message: "no DispatchPolicy matches the labels of the job and its namespace",
				Explanation: []v1alpha1.ClusterExplanation{
					explained("a", v1alpha1.ReasonPolicyMismatch, "no DispatchPolicy matches the labels of the job and its namespace"),
				},
			},
		},
		"InvalidPolicy": {
			reason:   "what the policy allows is not known",
			policies: []Policy{policy("eu", 0, toClusters(invalid()))},
			workers:  []Worker{worker("a", 9, 8)},
			want: want{
				Reason: v1alpha1.ReasonInvalidPolicy, Policy: "eu", Message: `DispatchPolicy "eu": spec.clusters.selector: "Like" is not a valid label selector operator`,
				Explanation: []v1alpha1.ClusterExplanation{
					explained("a", v1alpha1.ReasonPolicyMismatch, `DispatchPolicy "eu": spec.clusters.selector: "Like" is not a valid label selector operator`),
				},
			},
		},
		"NotCompiled": {
			reason:   "an expression that nobody has compiled lets nothing through",
			policies: []Policy{policy("eu", 0, expressed("worker.gpus > 1"))},
			workers:  []Worker{worker("a", 9, 8)},
			want: want{
				Reason: v1alpha1.ReasonInvalidPolicy, Policy: "eu", Message: `DispatchPolicy "eu": spec.clusters.expression: it has not been compiled`,
				Explanation: []v1alpha1.ClusterExplanation{
					explained("a", v1alpha1.ReasonPolicyMismatch, `DispatchPolicy "eu": spec.clusters.expression: it has not been compiled`),
				},
			},
		},
		"Expression": {
			reason:   "the expression says no, or does not know, or yes",
			policies: []Policy{asking(fewerQueued(2), policy("eu", 0, expressed("queued < 2")))},
			workers:  []Worker{worker("a", 9, 8, queued(3)), worker("b", 9, 8, queued(2)), worker("c", 4, 8, queued(1))},
			want: want{
				Cluster: "c", Reason: v1alpha1.ReasonPlaced, Message: "score 87: MostAllocated 87; the only worker on which the job fits", Policy: "eu",
				Explanation: []v1alpha1.ClusterExplanation{
					explained("a", v1alpha1.ReasonPolicyMismatch, "the expression of DispatchPolicy eu is false for the worker: worker.queued is 3"),
					explained("b", v1alpha1.ReasonPolicyMismatch, "the expression of DispatchPolicy eu cannot be evaluated for the worker: nobody knows"),
					scored("c", 87),
				},
			},
		},
		"Pin": {
			reason:      "the job narrows what its policy allows, and does not widen it",
			policies:    []Policy{eu},
			annotations: map[string]string{v1alpha1.AnnotationClusters: "disk=nvme"},
			workers: []Worker{
				worker("a", 9, 8, inRegion("eu")), worker("b", 4, 8, labelled("region", "eu", "disk", "nvme")), worker("c", 9, 8, labelled("region", "us", "disk", "nvme")),
			},
			want: want{
				Cluster: "b", Reason: v1alpha1.ReasonPlaced, Message: "score 88: MostAllocated 88; the only worker on which the job fits", Policy: "eu",
				Explanation: []v1alpha1.ClusterExplanation{
					explained("a", v1alpha1.ReasonPinMismatch, `the job is pinned to trainyard.dev/clusters="disk=nvme", which does not select the worker: label disk is not there`),
					scored("b", 88),
					explained("c", v1alpha1.ReasonPolicyMismatch, `DispatchPolicy eu does not select the worker: label region is "us"`),
				},
			},
		},
		"InvalidPin": {
			reason:      "where the user wants the job is not known",
			annotations: map[string]string{v1alpha1.AnnotationClusters: "disk in nvme"},
			workers:     []Worker{worker("a", 9, 8), worker("b", 9, 8, isNotReady)},
			want: want{
				Reason: v1alpha1.ReasonInvalidPin, Message: badPin,
				Explanation: []v1alpha1.ClusterExplanation{
					explained("a", v1alpha1.ReasonPinMismatch, badPin), explained("b", v1alpha1.ReasonNotReady, down),
				},
			},
		},
		"LongPin": {
			reason:      "each worker is asked about it, so it has a limit",
			annotations: map[string]string{v1alpha1.AnnotationClusters: "disk in (" + strings.Repeat("a,", 2500) + "nvme)"},
			workers:     []Worker{worker("a", 9, 8)},
			want: want{
				Reason: v1alpha1.ReasonInvalidPin, Message: "annotation trainyard.dev/clusters: it has 5014 bytes, and may have at most 4096",
				Explanation: []v1alpha1.ClusterExplanation{
					explained("a", v1alpha1.ReasonPinMismatch, "annotation trainyard.dev/clusters: it has 5014 bytes, and may have at most 4096"),
				},
			},
		},
		"OnlyOneFits": {
			reason:   "each filter rejects one worker, and says so",
			policies: []Policy{eu},
			excluded: excludedFor(v1alpha1.ReasonNameConflict, exists, "e"),
			workers: []Worker{
				worker("f", 4, 8, inRegion("eu")), worker("e", 9, 8, inRegion("eu")), worker("d", 1, 7, inRegion("eu")),
				worker("c", 9, 8, inRegion("us")), worker("b", 9, 8, isCordoned), worker("a", 9, 8, isNotReady),
			},
			want: want{
				Cluster: "f", Reason: v1alpha1.ReasonPlaced, Message: "score 88: MostAllocated 88; the only worker on which the job fits", Policy: "eu",
				Explanation: []v1alpha1.ClusterExplanation{
					explained("a", v1alpha1.ReasonNotReady, down),
					explained("b", v1alpha1.ReasonCordoned, cordon),
					explained("c", v1alpha1.ReasonPolicyMismatch, `DispatchPolicy eu does not select the worker: label region is "us"`),
					explained("d", v1alpha1.ReasonInsufficientResources, lacks),
					explained("e", v1alpha1.ReasonNameConflict, exists),
					scored("f", 88),
				},
			},
		},
		"MostAllocated": {
			reason:  "the worker wins that is the fullest afterwards, so that whole nodes stay free elsewhere",
			workers: []Worker{worker("a", 4, 8), worker("b", 20, 8), worker("c", 8, 8)},
			want: want{
				Cluster: "a", Reason: v1alpha1.ReasonPlaced, Message: "score 88: MostAllocated 88; the highest of 3 workers on which the job fits",
				Explanation: []v1alpha1.ClusterExplanation{scored("a", 88), scored("b", 78), scored("c", 81)},
			},
		},
		"NoFit": {
			reason: "the message has those that are closest to taking the job",
			workers: []Worker{
				worker("a", 9, 8, isNotReady), worker("b", 9, 8, isCordoned), worker("c", 1, 8, inRegion("eu")), worker("d", 1, 7),
			},
			want: want{
				Reason: v1alpha1.ReasonNoFit,
				Message: "c: lacks 8 nvidia.com/gpu on nodes with at least 8 free; 1 more such node would do; it has room for 1 of 2 pods, 1 node in all; d: " + lacks +
					"; b: " + cordon + " and 1 more",
				Explanation: []v1alpha1.ClusterExplanation{
					explained("a", v1alpha1.ReasonNotReady, down),
					explained("b", v1alpha1.ReasonCordoned, cordon),
					explained("c", v1alpha1.ReasonInsufficientResources, "lacks 8 nvidia.com/gpu on nodes with at least 8 free; 1 more such node would do; it has room for 1 of 2 pods, 1 node in all"),
					explained("d", v1alpha1.ReasonInsufficientResources, lacks),
				},
			},
		},
		"NameConflict": {
			reason:   "the job would fit if its name were free",
			excluded: excludedFor(v1alpha1.ReasonNameConflict, exists, "a"),
			workers:  []Worker{worker("a", 2, 8), worker("b", 1, 7)},
			want: want{
				Reason: v1alpha1.ReasonNameConflict, Message: "a: " + exists + "; b: " + lacks,
				Explanation: []v1alpha1.ClusterExplanation{
					explained("a", v1alpha1.ReasonNameConflict, exists), explained("b", v1alpha1.ReasonInsufficientResources, lacks),
				},
			},
		},
		"Rejected": {
			reason:   "the job would fit if the worker took it",
			excluded: excludedFor(v1alpha1.ReasonRejected, rejected, "a"),
			workers:  []Worker{worker("a", 2, 8)},
			want: want{
				Reason: v1alpha1.ReasonRejected, Message: "a: " + rejected,
				Explanation: []v1alpha1.ClusterExplanation{explained("a", v1alpha1.ReasonRejected, rejected)},
			},
		},
		"ConflictWhereItWouldNotFit": {
			reason:   "freeing the name would not help",
			excluded: excludedFor(v1alpha1.ReasonNameConflict, exists, "a"),
			workers:  []Worker{worker("a", 1, 7)},
			want: want{
				Reason: v1alpha1.ReasonNoFit, Message: "a: " + exists,
				Explanation: []v1alpha1.ClusterExplanation{explained("a", v1alpha1.ReasonNameConflict, exists)},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := Job{UID: "1", PodSets: podSets, Excluded: tc.excluded, Annotations: tc.annotations}
			d := Decide(job, tc.policies, tc.workers)
			got := want{Cluster: d.Cluster, Reason: d.Reason, Message: d.Message}
			if d.Policy != nil {
				got.Policy = d.Policy.Name
			}
			if lines := Explain(job, tc.policies, tc.workers); len(lines) > 0 {
				got.Explanation = lines
			}
			check.Diff(t, tc.want, got, fmt.Sprintf("%s\nDecide and Explain", tc.reason))
		})
	}
}

func TestLeastAllocated(t *testing.T) {
	const cpus = "cpu"
	cases := map[string]struct {
		reason      string
		podSets     []v1alpha1.PodSet
		free        Resources
		allocatable Resources
		want        int32
	}{
		"GPUs": {
			reason:      "GPUs count for a job that has some, even if it takes a larger share of the CPUs",
			podSets:     []v1alpha1.PodSet{podSet(1, 2, requests(resources("2", "4")))},
			free:        Resources{gpu: 8, cpus: 4000},
			allocatable: Resources{gpu: 8, cpus: 4000},
			want:        75,
		},
		"CPUs": {
			reason:      "without GPUs the largest share counts",
			podSets:     []v1alpha1.PodSet{podSet(1, 0, requests(resources("0", "1")))},
			free:        Resources{gpu: 8, cpus: 3000},
			allocatable: Resources{gpu: 8, cpus: 4000},
			want:        50,
		},
		"Nothing": {
			reason:  "a job that requests nothing leaves everything free",
			podSets: []v1alpha1.PodSet{podSet(1, 0)},
			free:    Resources{gpu: 8},
			want:    100,
		},
		"NoAllocatable": {
			reason:  "what is free is the least that can be allocatable",
			podSets: []v1alpha1.PodSet{podSet(1, 2)},
			free:    Resources{gpu: 8},
			want:    75,
		},
		"Phases": {
			reason:  "of the phases the larger counts",
			podSets: []v1alpha1.PodSet{podSet(1, 2, named("model", v1alpha1.RoleModelInitializer)), podSet(1, 6)},
			free:    Resources{gpu: 8},
			want:    25,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := Worker{Nodes: NewNodes([]NodeGroup{{Free: tc.free, Count: 1}}), Allocatable: tc.allocatable}
			g := newGang(tc.podSets)
			g.bind(w.Nodes)
			check.Equal(t, tc.want, leastAllocated(&scores{filters: &filters{gang: g}}, nil, &w).score(),
				"%s: leastAllocated", tc.reason)
		})
	}
}

func TestTiesSpread(t *testing.T) {
	var workers []Worker
	for i := range 8 {
		workers = append(workers, worker(v1alpha1.ClusterName(fmt.Sprint("worker-", i)), 4, 8))
	}
	const jobs = 4000
	wins := map[v1alpha1.ClusterName]int{}
	for i := range jobs {
		job := Job{UID: types.UID(fmt.Sprintf("%08d-8c4c-4a5d-a6a0-0f3d62ab5b2f", i)), PodSets: []v1alpha1.PodSet{podSet(1, 8)}}
		winner := Decide(job, nil, workers).Cluster
		wins[winner]++
		// Rendezvous: the removal of a worker that lost changes nothing.
		for at, w := range workers {
			if i%100 == 0 && w.Name != winner {
				rest := append(append([]Worker{}, workers[:at]...), workers[at+1:]...)
				if got := Decide(job, nil, rest).Cluster; got != winner {
					t.Errorf("without %s the job goes to %s instead of %s", w.Name, got, winner)
				}
			}
		}
	}
	for _, w := range workers {
		if got, want := wins[w.Name], jobs/len(workers); got < want*3/4 || got > want*5/4 {
			t.Errorf("%s wins %d of %d jobs, want about %d", w.Name, got, jobs, want)
		}
	}
}

func TestBounds(t *testing.T) {
	long := strings.Repeat("ü", maxMessage)
	var workers []Worker
	for i := range maxExplanation + 10 {
		w := worker(v1alpha1.ClusterName(fmt.Sprintf("worker-%04d", i)), 1, 1)
		if i < 10 {
			w.NotReady = long
		}
		workers = append(workers, w)
	}
	job := Job{PodSets: []v1alpha1.PodSet{podSet(1, 8)}}
	lines := Explain(job, nil, workers)
	if len(lines) != maxExplanation || lines[0].Cluster != "worker-0010" {
		t.Errorf("%d lines from %s, want %d without those that are furthest from taking the job", len(lines), lines[0].Cluster, maxExplanation)
	}
	for _, message := range []string{Explain(job, nil, workers[:1])[0].Message, Decide(job, nil, workers[:5]).Message} {
		if len(message) > maxMessage || !utf8.ValidString(message) || !strings.HasSuffix(message, "...") {
			t.Errorf("a message of %d bytes is not cut well: %.20s...%s", len(message), message, message[len(message)-10:])
		}
	}
}
