// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
)

// differ runs steps with a queue and with the reference, and returns the first step with different results.
func differ(t testing.TB, workers int, steps []step) (at int, got, want []string) {
	real, ideal := newWorld(t, queue.New(), workers), newWorld(t, newReference(), workers)
	for i, s := range steps {
		real.do(s)
		ideal.do(s)
		if !slices.Equal(real.log, ideal.log) {
			return i, real.log, ideal.log
		}
		real.log, ideal.log = nil, nil
	}
	return -1, nil, nil
}

// shrink leaves out steps while the rest still fails.
func shrink(steps []step, fails func([]step) bool) []step {
	for size := len(steps) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(steps); {
			if less := slices.Delete(slices.Clone(steps), at, at+size); fails(less) {
				steps = less
			} else {
				at += size
			}
		}
	}
	return steps
}

// seeds is the number of random cases of a test.
var seeds = flag.Uint64("seeds", 30, "random cases for each property")

// TestLikeReference: Pass places, preempts and holds what the reference does, which decides about every job after each
// change.
func TestLikeReference(t *testing.T) {
	for seed := range *seeds {
		workers := []int{4, 12}[seed%2]
		steps := newSteps(seed, 100+20*workers)
		if at, _, _ := differ(t, workers, steps); at < 0 {
			continue
		}
		steps = shrink(steps, func(s []step) bool { at, _, _ := differ(t, workers, s); return at >= 0 })
		at, got, want := differ(t, workers, steps)
		t.Fatalf("seed %d: after step %d of %+v the queue has\n%s\nand every job asked anew gives\n%s",
			seed, at, steps, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// shuffled shows the queue its workers in another order on each pass.
type shuffled struct {
	*queue.Queue
	*rand.Rand
}

func (s shuffled) Pass(now time.Time, f queue.Fleet) []queue.Outcome {
	f.(*fleet).shuffle(s.Rand)
	return s.Queue.Pass(now, f)
}

// TestShuffle: neither the order of the workers nor the order in which jobs came changes decisions and answers.
func TestShuffle(t *testing.T) {
	for seed := range *seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		plain, other := newWorld(t, queue.New(), 6), newWorld(t, shuffled{queue.New(), r}, 6)
		for _, s := range newSteps(seed, 200) {
			plain.fleet.sort() // The numbers of steps count workers.
			other.fleet.sort()
			plain.do(s)
			other.do(s)
			if s.what == "policy" { // All jobs come to the waiting list again.
				for _, j := range plain.waiting {
					plain.Leave(j.Key())
					plain.Enter(j)
				}
				for _, at := range r.Perm(len(other.waiting)) {
					other.Leave(other.waiting[at].Key())
					other.Enter(other.waiting[at])
				}
			}
			if !slices.Equal(plain.log, other.log) {
				t.Fatalf("seed %d: in another order it is\n%s\ninstead of\n%s", seed, strings.Join(other.log, "\n"), strings.Join(plain.log, "\n"))
			}
		}
	}
}

// summed is Waiting, from the answer to each job. A reserved job counts as Queued if it is not the first of its class.
func summed(q *queue.Queue, jobs []queue.Job) []queue.Waiting {
	jobs = slices.Clone(jobs)
	slices.SortFunc(jobs, func(a, b queue.Job) int { return first(&a, &b) })
	seen := map[string]bool{}
	sums := map[string]*queue.Waiting{}
	for i := range jobs {
		j := &jobs[i]
		answer, _ := q.Answer(j.Key())
		policy, class := "", fmt.Sprint(j.Class, j.Priority)
		if p, _, err := dispatch.SelectPolicy(j.Policies, j.Job); err == nil && p != nil {
			policy = p.Name
		}
		sum := sums[policy]
		if sum == nil {
			sum = &queue.Waiting{
				Policy: policy, Jobs: map[string]int{}, Devices: dispatch.Resources{}, First: j.Since, Oldest: j.Since,
			}
			sums[policy] = sum
		}
		switch {
		case !seen[class] && j.Since.Before(sum.Oldest):
			sum.Oldest = j.Since
		case seen[class] && answer.Reason == v1alpha1.ReasonReserved:
			answer.Reason = v1alpha1.ReasonQueued
		}
		seen[class] = true
		sum.Jobs[answer.Reason]++
		for i := range j.PodSets {
			if set := &j.PodSets[i]; dispatch.PhaseOf(set) != 0 && set.Requests.Name(gpu, resource.DecimalSI).Value() > 0 {
				sum.Devices[gpu] += int64(set.Count) * set.Requests.Name(gpu, resource.DecimalSI).Value()
			}
		}
	}
	list := []queue.Waiting{}
	for _, policy := range slices.Sorted(maps.Keys(sums)) {
		list = append(list, *sums[policy])
	}
	return list
}

// TestInvariants: a second pass changes nothing and asks for nothing. All jobs have an answer. No waiting job fits on
// what it may use, unless its policy is strict. The fleet checks that no worker is over-filled.
func TestInvariants(t *testing.T) {
	reasons := map[string]int{}
	for seed := range *seeds {
		q := queue.New()
		w := newWorld(t, q, 4+int(seed%9))
		for at, s := range newSteps(seed, 200) {
			if w.do(s); s.what != "pass" {
				continue
			}
			w.log = nil
			w.asked = 0
			if w.pass(); w.asked > 0 {
				t.Fatalf("seed %d, step %d: passing again asks the fleet %d questions", seed, at, w.asked)
			}
			if outcomes := w.Pass(w.now, w.fleet); len(outcomes) > 0 {
				t.Fatalf("seed %d, step %d: passing again gives %+v", seed, at, outcomes[0])
			}
			if got, want := q.Waiting(), summed(q, w.waiting); !cmp.Equal(got, want) {
				t.Fatalf("seed %d, step %d: the waiting list is summed up as\n%+v\nand has\n%+v", seed, at, got, want)
			}
			for _, j := range w.waiting {
				answer, ok := q.Answer(j.Key())
				if reasons[answer.Reason]++; !ok || answer.Cluster != "" || answer.Reason == "" || answer.Message == "" {
					t.Fatalf("seed %d, step %d: the answer for %s is %+v, %v", seed, at, j.UID, answer, ok)
				}
				held := policyOf(&j).Spec.Queueing == v1alpha1.StrictFIFO && answer.Reason == v1alpha1.ReasonQueued
				for _, line := range q.Explain(&j, w.fleet) {
					if line.Reason == v1alpha1.ReasonFits && !held {
						t.Fatalf("seed %d, step %d: %s waits (%s), and would fit on %s", seed, at, j.UID, answer.Reason, line.Cluster)
					}
				}
			}
		}
	}
	for _, reason := range []string{
		v1alpha1.ReasonNoFit, v1alpha1.ReasonQueued, v1alpha1.ReasonReserved, v1alpha1.ReasonPreempting, v1alpha1.ReasonNoPolicy,
	} {
		if reasons[reason] == 0 {
			t.Errorf("no job has the answer %s: %v", reason, reasons)
		}
	}
}
