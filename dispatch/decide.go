// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Job is a TrainJob that is to be placed.
type Job struct {
	// UID of the TrainJob. It decides between workers of equal score.
	UID types.UID
	// Labels of the TrainJob.
	Labels map[string]string
	// NamespaceLabels are the labels of its namespace.
	NamespaceLabels map[string]string
	// PodSets are its demand.
	PodSets []v1alpha1.PodSet
	// Excluded are workers that cannot take this job at present. An exclusion that has ended is left out by the caller.
	Excluded map[v1alpha1.ClusterName]Exclusion
}

// Exclusion is why a worker cannot take one job, whatever it has free.
type Exclusion struct {
	// Reason is v1alpha1.ReasonNameConflict or v1alpha1.ReasonRejected.
	Reason string
	// Message in the worker's words.
	Message string
}

// Worker is a WorkerCluster as it is now.
type Worker struct {
	// Name of the WorkerCluster. Each occurs once.
	Name v1alpha1.ClusterName
	// Labels of the WorkerCluster.
	Labels map[string]string
	// NotReady is reason and message of a Ready condition that is not True. Empty: the worker is Ready.
	NotReady string
	// Cordoned is spec.unschedulable.
	Cordoned bool
	// Nodes that take pods, without what is reserved for jobs whose pods they do not have yet.
	Nodes *Nodes
	// Allocatable of all nodes together, for the score.
	Allocatable Resources
}

// Decision is where a job goes, or why it waits.
type Decision struct {
	// Cluster is the chosen worker. Empty: the job waits.
	Cluster v1alpha1.ClusterName
	// Reason for the condition Placed: Placed, NoWorkers, NoPolicy, NoFit, NameConflict or Rejected.
	Reason string
	// Message for the condition Placed, one line of at most 1024 bytes. The same workers give the same message.
	Message string
	// Policy of the job, one of those that were given. Nil: there is none.
	Policy *v1alpha1.DispatchPolicy
}

// Decide chooses the worker with the highest score among those that pass all filters. The answer depends neither on the order
// of the workers nor on that of the policies, PodSets and nodes.
func Decide(job Job, policies []v1alpha1.DispatchPolicy, workers []Worker) Decision {
	f := newFilters(job, policies)
	if f.denied != "" {
		return Decision{Reason: v1alpha1.ReasonNoPolicy, Message: cut(f.denied)}
	}
	verdicts := make([]verdict, len(workers))
	tie := newRendezvous(job.UID)
	best, fitting := contender{}, 0
	for i := range workers {
		verdicts[i] = f.judge(&workers[i])
		if verdicts[i] != fits {
			continue
		}
		fitting++
		c := contender{worker: &workers[i], score: f.gang.leastAllocated(&workers[i])}
		if best.worker != nil && c.score < best.score {
			continue
		}
		if c.hash = tie.of(c.worker.Name); best.worker == nil || c.beats(best) {
			best = c
		}
	}
	if fitting == 0 {
		reason, message := f.waits(workers, verdicts)
		return Decision{Reason: reason, Message: cut(message), Policy: f.policy}
	}
	return Decision{
		Cluster: best.worker.Name,
		Reason:  v1alpha1.ReasonPlaced,
		Message: placedMessage(best.score, fitting),
		Policy:  f.policy,
	}
}

// contender is a worker on which the job fits.
type contender struct {
	worker *Worker
	score  int32
	hash   uint64
}

func (c contender) beats(other contender) bool {
	return cmp.Or(cmp.Compare(c.score, other.score), cmp.Compare(c.hash, other.hash),
		cmp.Compare(other.worker.Name, c.worker.Name)) > 0
}

func placedMessage(score int32, fitting int) string {
	if fitting == 1 {
		return "it is the only worker on which the job fits"
	}
	return fmt.Sprintf("it has the highest score, %d, of %d workers on which the job fits", score, fitting)
}

// MaxExplanation is how many workers the API has room for in an explanation.
const MaxExplanation = 1000

// Explain says of each worker, sorted by name, whether the job fits there, with its score, or which filter rejected it. It asks
// what Decide asks. Of more than MaxExplanation workers it names those that are closest to taking the job.
func Explain(job Job, policies []v1alpha1.DispatchPolicy, workers []Worker) []v1alpha1.ClusterExplanation {
	f := newFilters(job, policies)
	type judged struct {
		worker  *Worker
		verdict verdict
	}
	all := make([]judged, len(workers))
	for i := range workers {
		all[i] = judged{worker: &workers[i], verdict: f.judge(&workers[i])}
	}
	byName := func(a, b judged) int { return cmp.Compare(a.worker.Name, b.worker.Name) }
	if len(all) > MaxExplanation {
		slices.SortFunc(all, func(a, b judged) int { return cmp.Or(cmp.Compare(a.verdict, b.verdict), byName(a, b)) })
		all = all[:MaxExplanation]
	}
	slices.SortFunc(all, byName)
	lines := make([]v1alpha1.ClusterExplanation, len(all))
	for i, j := range all {
		lines[i] = v1alpha1.ClusterExplanation{
			Cluster: j.worker.Name,
			Reason:  f.reason(j.worker, j.verdict),
			Message: cut(f.message(j.worker, j.verdict)),
		}
		if j.verdict == fits {
			f.gang.bind(j.worker.Nodes)
			score := f.gang.leastAllocated(j.worker)
			lines[i].Score = &score
		}
	}
	return lines
}
