// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

func policy(name string, priority int32, change ...func(*v1alpha1.DispatchPolicySpec)) Policy {
	p := Policy{DispatchPolicy: &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	p.Spec.Priority = priority
	for _, c := range change {
		c(&p.Spec)
	}
	return p
}

func forJobs(s *metav1.LabelSelector) func(*v1alpha1.DispatchPolicySpec) {
	return func(spec *v1alpha1.DispatchPolicySpec) { spec.Jobs.Selector = s }
}

func forNamespaces(s *metav1.LabelSelector) func(*v1alpha1.DispatchPolicySpec) {
	return func(spec *v1alpha1.DispatchPolicySpec) { spec.Jobs.NamespaceSelector = s }
}

func toClusters(s *metav1.LabelSelector) func(*v1alpha1.DispatchPolicySpec) {
	return func(spec *v1alpha1.DispatchPolicySpec) { spec.Clusters.Selector = s }
}

func matching(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func invalid() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}
}

func TestSelectPolicy(t *testing.T) {
	type want struct {
		Name, Err string
		OK        bool
	}
	job := Job{Labels: map[string]string{"team": "vision"}, NamespaceLabels: map[string]string{"env": "prod"}}
	cases := map[string]struct {
		reason   string
		policies []Policy
		want     want
	}{
		"None": {
			reason: "without policies everything is allowed",
			want:   want{OK: true},
		},
		"NoMatch": {
			reason:   "as soon as there is a policy, a job needs one",
			policies: []Policy{policy("a", 0, forJobs(matching("team", "nlp")))},
		},
		"Both": {
			reason: "job and namespace must both match",
			policies: []Policy{
				policy("a", 2, forJobs(matching("team", "vision")), forNamespaces(matching("env", "dev"))),
				policy("b", 1, forJobs(matching("team", "vision")), forNamespaces(matching("env", "prod"))),
			},
			want: want{Name: "b", OK: true},
		},
		"Priority": {
			reason:   "the highest priority wins",
			policies: []Policy{policy("a", 1), policy("b", 3), policy("c", -1)},
			want:     want{Name: "b", OK: true},
		},
		"Name": {
			reason:   "of equal priority the first name wins",
			policies: []Policy{policy("b", 1), policy("a", 1), policy("c", 1)},
			want:     want{Name: "a", OK: true},
		},
		"Invalid": {
			reason:   "nobody knows whether the policy that would win matches",
			policies: []Policy{policy("b", 1), policy("a", 1, forJobs(invalid()))},
			want:     want{Err: `DispatchPolicy "a": spec.jobs.selector: "Like" is not a valid label selector operator`},
		},
		"InvalidOutranked": {
			reason:   "a fault in a policy that cannot win does no harm",
			policies: []Policy{policy("a", 1, forNamespaces(invalid())), policy("b", 2)},
			want:     want{Name: "b", OK: true},
		},
		"InvalidForOthers": {
			reason:   "a fault in a policy for other namespaces does no harm",
			policies: []Policy{policy("a", 1, forNamespaces(matching("env", "dev")), forJobs(invalid())), policy("b", 0)},
			want:     want{Name: "b", OK: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				p, ok, err := SelectPolicy(tc.policies, job)
				got := want{OK: ok}
				if p != nil {
					got.Name = p.Name
				}
				if err != nil {
					got.Err = err.Error()
				}
				check.Diff(t, tc.want, got, fmt.Sprintf("%s\nSelectPolicy", tc.reason))
				reverse(tc.policies)
			}
		})
	}
}

func TestNearest(t *testing.T) {
	draining := func(w *Worker) { w.Cordoned, w.Draining = true, true }
	for name, test := range map[string]struct {
		reason      string
		workers     []Worker
		annotations map[string]string
		excluded    map[v1alpha1.ClusterName]Exclusion
		// cluster and because are the answer's cluster and reason. The answer's message contains message.
		cluster          v1alpha1.ClusterName
		because, message string
	}{
		"Fits": {
			reason: "the one that Decide chooses", workers: []Worker{worker("a", 1, 8), worker("b", 4, 8)},
			cluster: "b", because: v1alpha1.ReasonFits, message: "the only worker on which the job fits",
		},
		"MostPlaces": {
			reason:  "of those that lack room the one with the most places, not the first by name",
			workers: []Worker{worker("a", 1, 7), worker("b", 1, 8), worker("c", 1, 7)},
			cluster: "b", because: v1alpha1.ReasonInsufficientResources, message: "room for 1 of 2 pods",
		},
		"ByName": {
			reason: "of equals the first", workers: []Worker{worker("b", 1, 7), worker("a", 1, 7)},
			cluster: "a", because: v1alpha1.ReasonInsufficientResources, message: "room for 0 of 2 pods",
		},
		"Excluded": {
			reason: "who refuses is nearer than who has no room", workers: []Worker{worker("a", 1, 8), worker("b", 4, 8)},
			excluded: map[v1alpha1.ClusterName]Exclusion{"b": {Reason: v1alpha1.ReasonRejected, Message: "words"}},
			cluster:  "b", because: v1alpha1.ReasonRejected, message: "words",
		},
		"Closed": {
			reason: "one that takes no jobs is nearer than one that is not Ready", workers: []Worker{worker("a", 4, 8, isNotReady), worker("b", 4, 8, draining)},
			cluster: "b", because: v1alpha1.ReasonCordoned, message: "the worker is being drained (spec.drain)",
		},
		"Cordoned": {
			reason: "which it is says the message", workers: []Worker{worker("a", 4, 8, isCordoned)},
			cluster: "a", because: v1alpha1.ReasonCordoned, message: "the worker is cordoned (spec.unschedulable)",
		},
		"Nobody": {
			reason: "there is no worker to name", because: v1alpha1.ReasonNoWorkers, message: "no WorkerCluster is registered",
		},
		"Denied": {
			reason: "no worker may take it, so that none is near", workers: []Worker{worker("a", 4, 8)},
			annotations: map[string]string{v1alpha1.AnnotationClusters: "disk in nvme"},
			because:     v1alpha1.ReasonInvalidPin, message: "unable to parse",
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := Job{UID: "uid", PodSets: []v1alpha1.PodSet{podSet(2, 8)}, Annotations: test.annotations, Excluded: test.excluded}
			for range 2 {
				got := Nearest(job, nil, test.workers)
				if got.Cluster != test.cluster || got.Reason != test.because || !strings.Contains(got.Message, test.message) {
					t.Errorf("Nearest() = %+v, want %q %s with %q: %s", got, test.cluster, test.because, test.message, test.reason)
				}
				slices.Reverse(test.workers) // The order does not matter.
			}
		})
	}
}

// A policy cannot pin runtimes and forbid to make them.
func TestPinNeedsRuntimes(t *testing.T) {
	for name, tc := range map[string]struct {
		runtime  v1alpha1.RuntimeRule
		runtimes bool
		faults   int
	}{
		"Pin":       {runtime: v1alpha1.RuntimePin, runtimes: true},
		"Forbidden": {runtime: v1alpha1.RuntimePin, runtimes: false, faults: 1},
		"Same":      {runtime: v1alpha1.RuntimeSame, runtimes: false},
	} {
		t.Run(name, func(t *testing.T) {
			policy := Policy{DispatchPolicy: &v1alpha1.DispatchPolicy{Spec: v1alpha1.DispatchPolicySpec{
				Runtime: tc.runtime, Propagate: &v1alpha1.Propagation{Runtimes: &tc.runtimes},
			}}}
			check.Equal(t, tc.faults, len(policy.Faults()), "how many faults the policy has: %v", policy.Faults())
		})
	}
}
