// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

const gpu = "nvidia.com/gpu"

var h100 = Resource{Flavor: "h100", Name: gpu}

// limit is a limit in a literal.
func limit(amount int64) *int64 { return &amount }

// gpus returns a resource group of one flavor.
func gpus(nominal int64, borrowing, lending *int64) []v1alpha1.KueueResourceGroup {
	return []v1alpha1.KueueResourceGroup{{
		Resources: []corev1.ResourceName{gpu},
		Flavors: []v1alpha1.KueueFlavorQuotas{{Name: "h100", Quotas: []v1alpha1.KueueResourceQuota{
			{Resource: gpu, Nominal: nominal, BorrowingLimit: borrowing, LendingLimit: lending},
		}}},
	}}
}

func used(amount int64) []v1alpha1.KueueAmount {
	return []v1alpha1.KueueAmount{{Flavor: "h100", Resource: gpu, Amount: amount}}
}

// TestAvailable follows the rules of Kueue's documentation.
func TestAvailable(t *testing.T) {
	for name, test := range map[string]struct {
		reason          string
		queues          []v1alpha1.KueueClusterQueue
		cohorts         []v1alpha1.KueueCohort
		available, most map[string]int64
	}{
		"Alone": {
			reason:    "without a cohort the nominal quota counts, and limits of borrowing and lending do not",
			queues:    []v1alpha1.KueueClusterQueue{{Name: "a", Groups: gpus(8, limit(4), limit(2)), Used: used(3)}},
			available: map[string]int64{"a": 5}, most: map[string]int64{"a": 8},
		},
		"Lent": {
			reason: "what one queue has borrowed the other one lacks",
			queues: []v1alpha1.KueueClusterQueue{
				{Name: "a", Cohort: "all", Groups: gpus(8, nil, nil), Used: used(10)}, {Name: "b", Cohort: "all", Groups: gpus(8, nil, nil)},
			},
			available: map[string]int64{"a": 6, "b": 6}, most: map[string]int64{"a": 16, "b": 16},
		},
		"BorrowingLimit": {
			reason: "a queue has at most so much more than its own",
			queues: []v1alpha1.KueueClusterQueue{
				{Name: "a", Cohort: "all", Groups: gpus(8, limit(2), nil), Used: used(9)}, {Name: "b", Cohort: "all", Groups: gpus(8, limit(0), nil)},
			},
			available: map[string]int64{"a": 1, "b": 7}, most: map[string]int64{"a": 10, "b": 8},
		},
		"LendingLimit": {
			reason: "a queue keeps what it does not lend",
			queues: []v1alpha1.KueueClusterQueue{
				{Name: "a", Cohort: "all", Groups: gpus(8, nil, limit(3))}, {Name: "b", Cohort: "all", Groups: gpus(4, nil, nil), Used: used(7)},
			},
			available: map[string]int64{"a": 5, "b": 0}, most: map[string]int64{"a": 12, "b": 7},
		},
		"Hierarchy": {
			reason: "a cohort has quota of its own, and limits as a queue has",
			queues: []v1alpha1.KueueClusterQueue{
				{Name: "a", Cohort: "left", Groups: gpus(4, nil, nil), Used: used(6)}, {Name: "b", Cohort: "right", Groups: gpus(4, nil, nil)},
			},
			cohorts: []v1alpha1.KueueCohort{
				{Name: "left", Parent: "root", Groups: gpus(2, limit(3), nil)}, {Name: "right", Parent: "root", Groups: gpus(0, nil, limit(1))},
				{Name: "root", Groups: gpus(10, nil, nil)},
			},
			available: map[string]int64{"a": 3, "b": 14}, most: map[string]int64{"a": 9, "b": 20},
		},
		"TooMuchReserved": {
			reason:    "quota was taken away, so less than nothing is left",
			queues:    []v1alpha1.KueueClusterQueue{{Name: "a", Groups: gpus(2, nil, nil), Used: used(5)}},
			available: map[string]int64{"a": -3}, most: map[string]int64{"a": 2},
		},
		"Hostile": {
			reason: "absurd amounts neither overflow nor give quota",
			queues: []v1alpha1.KueueClusterQueue{
				{Name: "a", Cohort: "all", Groups: gpus(1<<63-1, nil, nil), Used: used(-5)}, {Name: "b", Cohort: "all", Groups: gpus(1<<63-1, nil, nil)},
			},
			available: map[string]int64{"a": 2 * largest, "b": 2 * largest}, most: map[string]int64{"a": 2 * largest},
		},
	} {
		t.Run(name, func(t *testing.T) {
			counted := &v1alpha1.KueueQuota{ClusterQueues: test.queues, Cohorts: test.cohorts}
			for i := range test.queues {
				counted.LocalQueues = append(counted.LocalQueues, v1alpha1.KueueLocalQueue{Namespace: "ns", Name: test.queues[i].Name, ClusterQueue: test.queues[i].Name})
			}
			tree := New(counted)
			for queue, want := range test.available {
				if got := mustQueue(t, tree, queue).Available(h100); got != want {
					t.Errorf("%s: %s has %d available, want %d", test.reason, queue, got, want)
				}
			}
			for queue, want := range test.most {
				check.Equal(t, want, mustQueue(t, tree, queue).Most(h100), "%s: %s has at most", test.reason, queue)
			}
		})
	}
}

func mustQueue(t *testing.T, tree *Tree, name string) ClusterQueue {
	t.Helper()
	queue, problem := tree.Queue(types.NamespacedName{Namespace: "ns", Name: name})
	if problem != "" {
		t.Fatal(problem)
	}
	return queue
}

func TestQueue(t *testing.T) {
	tree := New(&v1alpha1.KueueQuota{
		ClusterQueues: []v1alpha1.KueueClusterQueue{
			{Name: "good"}, {Name: "held", Stopped: "it is stopped"}, {Name: "circled", Cohort: "x"}, {Name: "implied", Cohort: "nowhere"},
		},
		Cohorts: []v1alpha1.KueueCohort{{Name: "x", Parent: "y"}, {Name: "y", Parent: "z"}, {Name: "z", Parent: "y"}},
		LocalQueues: []v1alpha1.KueueLocalQueue{
			{Namespace: "ns", Name: "good", ClusterQueue: "good"}, {Namespace: "ns", Name: "held", ClusterQueue: "held"},
			{Namespace: "ns", Name: "circled", ClusterQueue: "circled"}, {Namespace: "ns", Name: "lost", ClusterQueue: "gone"},
			{Namespace: "ns", Name: "stopped", ClusterQueue: "good", Stopped: "its stopPolicy is Hold"},
			{Namespace: "ns", Name: "implied", ClusterQueue: "implied"},
		},
	})
	for name, want := range map[string]string{
		"good": "", "implied": "",
		"held":    "ClusterQueue held starts no jobs: it is stopped",
		"circled": "ClusterQueue circled starts no jobs: its cohorts form a cycle",
		"lost":    "LocalQueue ns/lost leads to ClusterQueue gone, which does not exist",
		"stopped": "LocalQueue ns/stopped starts no jobs: its stopPolicy is Hold",
		"none":    "the worker has no LocalQueue ns/none",
	} {
		if _, got := tree.Queue(types.NamespacedName{Namespace: "ns", Name: name}); got != want {
			t.Errorf("queue %s: %q, want %q", name, got, want)
		}
	}
	if _, problem := New(nil).Queue(types.NamespacedName{Namespace: "ns", Name: "good"}); !strings.Contains(problem, "no LocalQueue") {
		t.Errorf("without anything: %q", problem)
	}
}

// TestWithout gives back what the Workloads of some jobs have reserved, and nothing else.
func TestWithout(t *testing.T) {
	tree := New(&v1alpha1.KueueQuota{
		ClusterQueues: []v1alpha1.KueueClusterQueue{{Name: "a", Groups: gpus(8, nil, nil), Used: used(7)}},
		LocalQueues:   []v1alpha1.KueueLocalQueue{{Namespace: "ns", Name: "a", ClusterQueue: "a"}},
		Workloads: []v1alpha1.KueueWorkload{
			{Namespace: "ns", Job: "one", Queue: "a", ClusterQueue: "a", Used: used(2)}, {Namespace: "ns", Job: "two", Queue: "a", ClusterQueue: "a", Used: used(4)},
			{Namespace: "ns", Job: "waits", Queue: "a"},
		},
	})
	one := types.NamespacedName{Namespace: "ns", Name: "one"}
	if got := mustQueue(t, tree.Without(func(job types.NamespacedName) bool { return job == one }), "a").Available(h100); got != 3 {
		t.Errorf("without one job: %d, want 3", got)
	}
	check.Equal(t, 8, mustQueue(t, tree.Empty(), "a").Available(h100), "empty")
	check.Equal(t, 1, mustQueue(t, tree, "a").Available(h100), "the tree has changed")
	if reserved, queue := tree.Reserved(one); !reserved || queue != "a" {
		t.Errorf("one: %t %q", reserved, queue)
	}
	if reserved, queue := tree.Reserved(types.NamespacedName{Namespace: "ns", Name: "waits"}); reserved || queue != "a" {
		t.Errorf("waits: %t %q", reserved, queue)
	}
}

// chain returns a ClusterQueue in a chain of so many cohorts.
func chain(cohorts int) *v1alpha1.KueueQuota {
	counted := &v1alpha1.KueueQuota{
		ClusterQueues: []v1alpha1.KueueClusterQueue{{Name: "a", Cohort: "c0", Groups: gpus(8, nil, nil)}},
		LocalQueues:   []v1alpha1.KueueLocalQueue{{Namespace: "ns", Name: "a", ClusterQueue: "a"}},
	}
	for i := range cohorts - 1 {
		counted.Cohorts = append(counted.Cohorts, v1alpha1.KueueCohort{Name: fmt.Sprint("c", i), Parent: fmt.Sprint("c", i+1)})
	}
	return counted
}

// TestHostileTrees: whatever a worker reports, New returns soon, and says what it does not count.
func TestHostileTrees(t *testing.T) {
	for name, test := range map[string]struct {
		reason  string
		counted *v1alpha1.KueueQuota
		want    string
	}{
		"EmptyCohort": {
			reason: "no ClusterQueue can be in a Cohort without a name",
			counted: &v1alpha1.KueueQuota{
				Cohorts: []v1alpha1.KueueCohort{{Parent: "x"}}, ClusterQueues: chain(1).ClusterQueues, LocalQueues: chain(1).LocalQueues,
			},
		},
		"EmptyCohortAlone": {
			reason: "there is no place that it could get", counted: &v1alpha1.KueueQuota{Cohorts: []v1alpha1.KueueCohort{{Parent: "x"}}},
			want: "the worker has no LocalQueue ns/a",
		},
		"Deep": {reason: "63 cohorts and the ClusterQueue are 64 levels", counted: chain(63)},
		"TooDeep": {
			reason: "each level costs time", counted: chain(64),
			want: "ClusterQueue a starts no jobs: its cohorts have 65 levels, and at most 64 are counted",
		},
		"Long": {
			reason: "the time must not grow with the square of the length", counted: chain(4095),
			want: "ClusterQueue a starts no jobs: its cohorts have 4096 levels, and at most 64 are counted",
		},
		"TooMany": {
			reason: "one worker must not take the time of all", counted: chain(40_000),
			want: "the worker has 40001 ClusterQueues and cohorts, and at most 4096 are counted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			tree := New(test.counted)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("%s: New takes %s", test.reason, took)
			}
			_, got := tree.Queue(types.NamespacedName{Namespace: "ns", Name: "a"})
			check.Equal(t, test.want, got, "%s", test.reason)
		})
	}
}
