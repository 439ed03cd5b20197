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

// Job is a TrainJob that needs a worker.
type Job struct {
	// UID of the TrainJob. It decides between workers of equal score.
	UID types.UID
	// Name and Namespace of the TrainJob, for expressions.
	Name, Namespace string
	// Labels of the TrainJob.
	Labels map[string]string
	// Annotations of the TrainJob. v1alpha1.AnnotationClusters pins it. Expressions read the others.
	Annotations map[string]string
	// NamespaceLabels are the labels of its namespace.
	NamespaceLabels map[string]string
	// Priority of the TrainJob, for expressions. A higher number is more important.
	Priority int32
	// WorkerQueue is what the policy of the job says. QueuedOnHub: the hub's Kueue has the job in the queue of its label.
	WorkerQueue v1alpha1.WorkerQueue
	QueuedOnHub bool
	// Nominated: MultiKueue brings the job to the worker, and not Trainyard.
	Nominated bool
	// PodSets are the demand of the job.
	PodSets []v1alpha1.PodSet
	// Previous is the worker on which the job ran before, for the score Sticky. Empty: it did not run before.
	Previous v1alpha1.ClusterName
	// Excluded are workers that cannot take this job now. The caller leaves out exclusions that have ended.
	Excluded map[v1alpha1.ClusterName]Exclusion
}

// Exclusion is why a worker cannot take one job, even with enough free resources.
type Exclusion struct {
	// Reason is the result of an attempt there: NameConflict, Rejected, CopyDeleted or AdmissionTimeout.
	Reason string
	// Message is the worker's message.
	Message string
}

// Worker is a WorkerCluster as it is now.
type Worker struct {
	// Name of the WorkerCluster. No two workers have the same.
	Name v1alpha1.ClusterName
	// Labels of the WorkerCluster.
	Labels map[string]string
	// NotReady is the reason and message of a Ready condition that is not True. Empty: the worker is Ready.
	NotReady string
	// Cordoned: the worker takes no jobs, by spec.unschedulable or because it is Draining, by spec.drain.
	Cordoned, Draining bool
	// Nodes that take pods, without what is reserved for jobs whose pods are not on them yet.
	Nodes *Nodes
	// Allocatable of all nodes together, for scores and expressions.
	Allocatable Resources
	// WorkerQueue is spec.kueue.workerQueue.
	WorkerQueue v1alpha1.WorkerQueue
	// Price is spec.price as PricesOf converts it. It can change the score of other workers, see v1alpha1.ScorePrice.
	Price Prices
	// Assigned counts jobs that are placed there and have not ended. Queued counts those with pods on no node yet.
	Assigned, Queued int
	// KubernetesVersion and NodeGroups come from the status of the WorkerCluster, for expressions.
	KubernetesVersion string
	NodeGroups        []v1alpha1.NodeGroup
	// Revision changes whenever another field changes. An expression may cache its answer by it. 0: it may not.
	Revision uint64
}

// Decision is the worker of a job, or the reason why the job waits.
type Decision struct {
	// Cluster is the chosen worker. Empty: the job waits.
	Cluster v1alpha1.ClusterName
	// Reason for the condition Placed: Placed, NoWorkers, NoPolicy, InvalidPolicy, InvalidPin, NoFit, or the reason of an
	// exclusion, if only excluded workers have room for the job.
	Reason string
	// Message for the condition Placed, one line of at most 1024 bytes. The same workers give the same message.
	Message string
	// Policy of the job, one of the given policies. nil: the job has no policy.
	Policy *v1alpha1.DispatchPolicy
}

// Decide chooses the worker with the highest score among the workers that pass all filters. The order of workers,
// policies, PodSets and nodes does not change the answer.
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
	best, fitting := contender{}, 0
	for i := range workers {
		at = workers[i].Name
		results[i] = f.check(&workers[i])
		if results[i] != fits {
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
	if at = ""; fitting == 0 {
		reason, message := f.waits(workers, results)
		decision.Reason, decision.Message = reason, Cut(message)
		return decision
	}
	at = best.worker.Name
	f.gang.bind(best.worker.Nodes)
	decision.Cluster, decision.Reason = best.worker.Name, v1alpha1.ReasonPlaced
	decision.Message = Cut(scores.message(best.worker) + placedNote(fitting) + f.gang.assumption(best.worker.Nodes))
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
		}
		if j.result == fits {
			f.gang.bind(j.worker.Nodes)
			score := scores.total(j.worker)
			lines[i].Score, lines[i].Message = &score, Cut(scores.message(j.worker)+f.gang.assumption(j.worker.Nodes))
		}
	}
	return lines
}
