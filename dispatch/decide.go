// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// Decision is the worker of a job, or the reason why the job waits.
type Decision struct {
	// Cluster is the chosen worker. Empty: the job waits.
	Cluster v1alpha1.ClusterName
	// Reason for the condition Placed: Placed, NoWorkers, NoPolicy, InvalidPolicy, InvalidPin, NoFit, or the reason of an
	// exclusion, if only excluded workers have room for the job.
	Reason string
	// Message for the condition Placed, one line of at most 1024 bytes. The same workers give the same message.
	Message string
	// Domain is the domain of the worker in which the pods run that belong together. nil: they may run anywhere there.
	Domain *v1alpha1.Domain
	// AddedNodes is how many nodes the worker would have to add for the job.
	AddedNodes int32
	// Policy of the job, one of the given policies. nil: the job has no policy.
	Policy *v1alpha1.DispatchPolicy
}

// Decide chooses the worker with the highest score among the workers that pass all filters. Workers on which the job
// fits on nodes that are there come before those that would have to add nodes, unless the policy says otherwise. Of the
// latter, the one that adds the cheapest nodes comes first, then the one that adds the fewest. For a job that prefers a
// domain, each worker on which it fits in one domain comes before each worker on which it does not. The order of
// workers, policies, PodSets and nodes does not change the answer.
func Decide(job Job, policies []Policy, workers []Worker) Decision {
	var at v1alpha1.ClusterName
	defer Blame(&at)
	f := newFilters(job, policies)
	decision := Decision{}
	if f.policy != nil {
		decision.Policy = f.policy.DispatchPolicy
	}
	if f.denial != nil {
		decision.Reason, decision.Message = f.denial.reason, Cut(f.denial.message)
		return decision
	}
	workers = seenBy(&job, workers)
	results := make([]filterResult, len(workers))
	scores := newScores(f, workers)
	tie := newRendezvous(job.UID)
	best, fitting := contender{}, [2]int{}
	for i := range workers {
		at = workers[i].Name
		results[i] = f.check(&workers[i])
		if results[i] != fits {
			continue
		}
		c := contender{worker: &workers[i], inDomain: f.domainOn(&workers[i]) != nil, sum: scores.sum(&workers[i])}
		if f.job.AddNodes != v1alpha1.AddNodesByScore {
			c.adds = f.expansionOn(c.worker)
		}
		fitting[c.tier()]++
		if best.worker != nil && c.adds == nil && best.adds == nil && c.inDomain == best.inDomain && c.sum < best.sum {
			continue
		}
		if c.hash = tie.of(c.worker.Name); best.worker == nil || c.beats(best) {
			best = c
		}
	}
	if at = ""; best.worker == nil {
		reason, message := f.waits(workers, results)
		decision.Reason, decision.Message = reason, Cut(message)
		return decision
	}
	at = best.worker.Name
	gang := f.gangOn(best.worker)
	gang.bind(best.worker.Nodes)
	decision.Cluster, decision.Reason = best.worker.Name, v1alpha1.ReasonPlaced
	decision.Domain = f.domainOn(best.worker)
	if adds := f.expansionOn(best.worker); adds != nil {
		decision.AddedNodes = int32(min(adds.nodes, math.MaxInt32)) //nolint:gosec // It is not above that.
	}
	decision.Message = Cut(scores.message(best.worker) + best.note(fitting[best.tier()]) + notes(f, gang, best.worker))
	return decision
}

// notes say how the job was counted on a worker that takes it. gang is the job's there.
func notes(f *filters, gang *gang, w *Worker) string {
	return f.domainNote(w) + f.translationNote(w) + f.job.Own.note(w.Name) + f.job.mergingNote(w) + gang.assumption(w.Nodes)
}

// contender is a worker on which the job fits.
type contender struct {
	worker   *Worker
	adds     *expansion // The nodes that it would have to add. nil: none, or they count by score only.
	inDomain bool       // It fits in one domain, as the job requires or prefers.
	sum      points
	hash     uint64
}

// tier is 0 for a worker on which the job fits on nodes that are there. Lower tiers come first.
func (c *contender) tier() int {
	if c.adds == nil {
		return 0
	}
	return 1
}

func (c *contender) beats(other contender) bool {
	switch {
	case c.tier() != other.tier():
		return c.tier() < other.tier()
	case c.inDomain != other.inDomain:
		return c.inDomain
	}
	return cmp.Or(c.adds.compare(other.adds), cmp.Compare(c.sum, other.sum), cmp.Compare(c.hash, other.hash),
		cmp.Compare(other.worker.Name, c.worker.Name)) > 0
}

// note says how the worker was chosen from all workers of its tier.
func (c *contender) note(fitting int) string {
	switch {
	case fitting == 1 && c.adds == nil:
		return "; the only worker on which the job fits"
	case c.adds == nil:
		return fmt.Sprintf("; the highest of %d workers on which the job fits", fitting)
	case fitting == 1:
		return "; no worker has room for the job without that, and no other worker could add nodes for it"
	}
	return fmt.Sprintf("; no worker has room for the job without that; the first by price, nodes and score of %d workers "+
		"that could add nodes", fitting)
}

// maxExplanation is how many workers an explanation of the API can have.
const maxExplanation = 1000

// Explain says for each worker, sorted by name, whether the job fits there and with which score, or which filter of
// Decide rejected it. With more than maxExplanation workers it keeps those closest to taking the job.
func Explain(job Job, policies []Policy, workers []Worker) []v1alpha1.ClusterExplanation {
	var at v1alpha1.ClusterName
	defer Blame(&at)
	f := newFilters(job, policies)
	workers = seenBy(&job, workers)
	scores := newScores(f, workers)
	type checked struct {
		worker *Worker
		result filterResult
	}
	all := make([]checked, len(workers))
	for i := range workers {
		at = workers[i].Name
		all[i] = checked{worker: &workers[i], result: f.check(&workers[i])}
	}
	byName := func(a, b checked) int { return cmp.Compare(a.worker.Name, b.worker.Name) }
	if len(all) > maxExplanation {
		slices.SortFunc(all, func(a, b checked) int { return cmp.Or(cmp.Compare(a.result, b.result), byName(a, b)) })
		all = all[:maxExplanation]
	}
	slices.SortFunc(all, byName)
	lines := make([]v1alpha1.ClusterExplanation, len(all))
	for i, j := range all {
		at = j.worker.Name
		lines[i] = v1alpha1.ClusterExplanation{
			Cluster: j.worker.Name,
			Reason:  f.reason(j.worker, j.result),
			Message: Cut(f.message(j.worker, j.result)),
			Domain:  f.domainOn(j.worker),
		}
		if j.result == fits {
			gang := f.gangOn(j.worker)
			gang.bind(j.worker.Nodes)
			score := scores.total(j.worker)
			lines[i].Score, lines[i].Message = &score, Cut(scores.message(j.worker)+notes(f, gang, j.worker))
		}
	}
	return lines
}

// maxMessage is the number of bytes to which messages are cut, so that the API server accepts them.
const maxMessage = 1024

// maxListed is the number of items that a list in a message names. It counts the others.
const maxListed = 3

// list joins items. It only counts those beyond maxListed.
func list(items []string, separator string) string {
	if len(items) <= maxListed {
		return strings.Join(items, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(items[:maxListed], separator), len(items)-maxListed)
}

// Cut shortens a message to 1024 bytes, the limit of a condition or an explanation.
func Cut(message string) string { return record.Cut(message, maxMessage) }

func plural(noun string, count int64) string {
	if count == 1 {
		return noun
	}
	return noun + "s"
}
