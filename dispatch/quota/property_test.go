// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// randomQuota returns up to three levels of cohorts with up to five queues, whose Workloads fit.
func randomQuota(r *rand.Rand) *v1alpha1.KueueQuota {
	counted := &v1alpha1.KueueQuota{}
	maybe := func(most int64) *int64 {
		if r.IntN(2) == 0 {
			return nil
		}
		return limit(r.Int64N(most + 1))
	}
	group := func(isRoot bool) []v1alpha1.KueueResourceGroup {
		nominal := r.Int64N(9)
		borrowing, lending := maybe(6), maybe(nominal)
		if isRoot {
			borrowing, lending = nil, nil
		}
		return gpus(nominal, borrowing, lending)
	}
	cohorts := r.IntN(4)
	for i := range cohorts {
		c := v1alpha1.KueueCohort{Name: fmt.Sprint("c", i)}
		if i > 0 && r.IntN(4) > 0 {
			c.Parent = fmt.Sprint("c", r.IntN(i))
		}
		if r.IntN(3) > 0 {
			c.Groups = group(c.Parent == "")
		}
		counted.Cohorts = append(counted.Cohorts, c)
	}
	for i := range 1 + r.IntN(5) {
		q := v1alpha1.KueueClusterQueue{Name: fmt.Sprint("q", i)}
		if cohorts > 0 && r.IntN(5) > 0 {
			q.Cohort = fmt.Sprint("c", r.IntN(cohorts))
		}
		q.Groups = group(q.Cohort == "")
		counted.ClusterQueues = append(counted.ClusterQueues, q)
		counted.LocalQueues = append(counted.LocalQueues, v1alpha1.KueueLocalQueue{Namespace: "ns", Name: q.Name, ClusterQueue: q.Name})
	}
	return counted
}

// TestProperties: in random trees, with random reservations that fit, no subtree ever uses more than it has and may
// borrow. What a queue reserves is not available to it any more. More use never gives a queue more, and no queue has
// more than if nothing were reserved. A charged tree equals the tree that is counted again.
func TestProperties(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 7))
		counted := randomQuota(r)
		tree := New(counted)
		for range 12 {
			at := r.IntN(len(counted.ClusterQueues))
			queue := mustQueue(t, tree, counted.ClusterQueues[at].Name)
			free := queue.Available(h100)
			if free < 0 {
				t.Fatalf("seed %d: %s has %d available without too much being reserved", seed, queue.Name(), free)
			}
			amount := r.Int64N(free + 1)
			next := queue.Charge(Amounts{h100: amount})
			counted.ClusterQueues[at].Used = used(usedOf(&counted.ClusterQueues[at]) + amount)
			if got := mustQueue(t, next, queue.Name()).Available(h100); got != free-amount {
				t.Fatalf("seed %d: %s had %d, reserves %d, and has %d", seed, queue.Name(), free, amount, got)
			}
			checkTrees(t, seed, tree, next, New(counted))
			tree = next
		}
	}
}

func usedOf(q *v1alpha1.KueueClusterQueue) int64 {
	if len(q.Used) == 0 {
		return 0
	}
	return q.Used[0].Amount
}

// checkTrees compares a tree with the tree before a charge, and with the tree that was counted again.
func checkTrees(t *testing.T, seed uint64, before, after, anew *Tree) {
	t.Helper()
	for i := range after.nodes {
		got := after.available(i, h100)
		if was := before.available(i, h100); got > was {
			t.Fatalf("seed %d: %s has %d available, more than the %d before a charge", seed, after.nodes[i].name, got, was)
		}
		if most := after.most(i, h100); got > most {
			t.Fatalf("seed %d: %s has %d available, and at most %d", seed, after.nodes[i].name, got, most)
		}
		if other := anew.available(i, h100); got != other {
			t.Fatalf("seed %d: %s has %d available, and %d when counted anew", seed, after.nodes[i].name, got, other)
		}
		n := &after.nodes[i]
		if used, has := after.used[i][h100], n.subtree[h100]; n.parent == noParent && used > has {
			t.Fatalf("seed %d: the tree of %s uses %d of %d", seed, n.name, used, has)
		} else if l, is := n.limits[h100]; is && n.parent != noParent && l.borrowing != unlimited && used > has+l.borrowing {
			t.Fatalf("seed %d: the subtree of %s uses %d of %d, and may borrow %d", seed, n.name, used, has, l.borrowing)
		}
	}
}
