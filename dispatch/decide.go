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
	// Name and Namespace of the TrainJob, for expressions.
	Name, Namespace string
	// Labels of the TrainJob.
	Labels map[string]string
	// Annotations of the TrainJob. v1alpha1.AnnotationClusters pins it; the others are for expressions.
	Annotations map[string]string
	// NamespaceLabels are the labels of its namespace.
	NamespaceLabels map[string]string
	// Priority of the TrainJob, for expressions: the higher, the more important.
	Priority int32
	// PodSets are its demand.
	PodSets []v1alpha1.PodSet
	// Previous is the worker on which the job has run before, for the score Sticky. Empty: it has not.
	Previous v1alpha1.ClusterName
	// Excluded are workers that cannot take this job at present. An exclusion that has ended is left out by the caller.
	Excluded map[v1alpha1.ClusterName]Exclusion
}

// Exclusion is why a worker cannot take one job, whatever it has free.
type Exclusion struct {
	// Reason is the outcome of an attempt there: NameConflict, Rejected, CopyDeleted or AdmissionTimeout.
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
	// Cordoned: the worker takes no jobs, by spec.unschedulable or because it is Draining, by spec.drain.
	Cordoned, Draining bool
	// Nodes that take pods, without what is reserved for jobs whose pods they do not have yet.
	Nodes *Nodes
	// Allocatable of all nodes together, for scores and expressions.
	Allocatable Resources
	// Price is spec.price as PricesOf converts it. It has a part in the score of other workers, see v1alpha1.ScorePrice.
	Price Prices
	// Assigned is how many jobs have been placed there and have not ended, and Queued how many of these have pods that are on no
	// node yet.
	Assigned, Queued int
	// KubernetesVersion and NodeGroups are what the status of the WorkerCluster says, for expressions.
	KubernetesVersion string
	NodeGroups        []v1alpha1.NodeGroup
	// Revision is another one whenever anything else here is. An expression may remember its answer by it; 0: it may not.
	Revision uint64
}

// Decision is where a job goes, or why it waits.
type Decision struct {
	// Cluster is the chosen worker. Empty: the job waits.
	Cluster v1alpha1.ClusterName
	// Reason for the condition Placed: Placed, NoWorkers, NoPolicy, InvalidPolicy, InvalidPin, NoFit, or the
	// reason of an exclusion, if those workers have excluded the job on which it would fit.
	Reason string
	// Message for the condition Placed, one line of at most 1024 bytes. The same workers give the same message.
	Message string
	// Policy of the job, one of those that were given. Nil: there is none.
	Policy *v1alpha1.DispatchPolicy
}

// Decide chooses the worker with the highest score among those that pass all filters. The answer depends neither on the order
// of the workers nor on that of the policies, PodSets and nodes.
func Decide(job Job, policies []Policy, workers []Worker) Decision {
	f := newFilters(job, policies)
	decision := Decision{}
	if f.policy != nil {
		decision.Policy = f.policy.DispatchPolicy
	}
	if f.denial != nil {
		decision.Reason, decision.Message = f.denial.reason, Cut(f.denial.message)
		return decision
	}
	verdicts := make([]verdict, len(workers))
	scores := newScores(f, workers)
	tie := newRendezvous(job.UID)
	best, fitting := contender{}, 0
	for i := range workers {
		verdicts[i] = f.judge(&workers[i])
		if verdicts[i] != fits {
			continue
		}
		fitting++
		c := contender{worker: &workers[i], sum: scores.sum(&workers[i])}
		if best.worker != nil && c.sum < best.sum {
			continue
		}
		if c.hash = tie.of(c.worker.Name); best.worker == nil || c.beats(best) {
			best = c
		}
	}
	if fitting == 0 {
		reason, message := f.waits(workers, verdicts)
		decision.Reason, decision.Message = reason, Cut(message)
		return decision
	}
	f.gang.bind(best.worker.Nodes)
	decision.Cluster, decision.Reason = best.worker.Name, v1alpha1.ReasonPlaced
	decision.Message = scores.message(best.worker) + placedNote(fitting)
	return decision
}

// contender is a worker on which the job fits.
type contender struct {
	worker *Worker
	sum    points
	hash   uint64
}

func (c contender) beats(other contender) bool {
	return cmp.Or(cmp.Compare(c.sum, other.sum), cmp.Compare(c.hash, other.hash),
		cmp.Compare(other.worker.Name, c.worker.Name)) > 0
}

func placedNote(fitting int) string {
	if fitting == 1 {
		return "; the only worker on which the job fits"
	}
	return fmt.Sprintf("; the highest of %d workers on which the job fits", fitting)
}

// MaxExplanation is how many workers the API has room for in an explanation.
const MaxExplanation = 1000

// Explain says of each worker, sorted by name, whether the job fits there, with its score, or which filter rejected it. It asks
// what Decide asks. Of more than MaxExplanation workers it names those that are closest to taking the job.
func Explain(job Job, policies []Policy, workers []Worker) []v1alpha1.ClusterExplanation {
	f := newFilters(job, policies)
	scores := newScores(f, workers)
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
			Message: Cut(f.message(j.worker, j.verdict)),
		}
		if j.verdict == fits {
			f.gang.bind(j.worker.Nodes)
			score := scores.total(j.worker)
			lines[i].Score, lines[i].Message = &score, scores.message(j.worker)
		}
	}
	return lines
}
