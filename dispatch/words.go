// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/executionlease/protocol"
)

// reason converts a result to a reason of the API.
func (f *filters) reason(w *Worker, r filterResult) string {
	switch {
	case r == excluded:
		return f.job.Excluded[w.Name].Reason
	case r == insufficient && f.lacksDomain(w):
		return v1alpha1.ReasonNoDomain
	case r == insufficient && f.mismatched(w):
		return v1alpha1.ReasonNoMatchingNode
	}
	return filterRows[r].reason
}

// lacksDomain says whether the worker has nodes, and none that could be the domain of the job.
func (f *filters) lacksDomain(w *Worker) bool {
	return f.job.Topology.IsRequired() && f.choices[w.Name] != nil && f.job.avoids(w.Name) == "" &&
		len(populated(w.Nodes)) > 0 && f.nearestDomain(w) == ""
}

// mismatched says whether no end of jobs would help the job on the worker, see gang.mismatched.
func (f *filters) mismatched(w *Worker) bool {
	if f.job.Topology.IsRequired() && f.choices[w.Name] != nil {
		if nearest := f.nearestDomain(w); nearest != "" {
			return f.search(w).gangIn(nearest).mismatched(w.Nodes)
		}
	}
	return f.gangOn(w).mismatched(w.Nodes)
}

// message says why a filter rejected a worker.
func (f *filters) message(w *Worker, r filterResult) string {
	if r == fits {
		return ""
	}
	defer Blame(&w.Name)
	return filterRows[r].message(f, w)
}

// tooLong says what would be right.
func (f *filters) tooLong(w *Worker) string {
	grace := time.Duration(f.job.GraceOn(w.Name).Seconds) * time.Second
	return fmt.Sprintf("checkpoint.grace of DispatchPolicy %s is %s, and the worker's agent can give pods with failover Fenced %s: "+
		"let grace be at most that, or spec.failover.fenceAfter of the WorkerCluster at least %s",
		f.policy.Name, grace, w.LongestGrace.Truncate(time.Second), protocol.ShortestFenceAfter(grace))
}

// objection says why the policy's expression rejects a worker.
func (f *filters) objection(w *Worker) string {
	if _, err := f.admits(w); err != nil {
		return fmt.Sprintf("the expression of DispatchPolicy %s cannot be evaluated for the worker: %v", f.policy.Name, err)
	}
	message := "the expression of DispatchPolicy " + f.policy.Name + " is false for the worker"
	if reads := f.policy.Expression.Reads(w); reads != "" {
		message += ": " + reads
	}
	return message
}

// mismatch says which labels of a worker do not match a selector: ": label region is \"us\"". It leaves out which values
// the selector wants: they may be very many, and each explanation of a job has a line for each worker.
func mismatch(selector labels.Selector, worker map[string]string) string {
	requirements, _ := selector.Requirements()
	var faults []string
	for i := range requirements {
		if requirements[i].Matches(labels.Set(worker)) {
			continue
		}
		key, is := requirements[i].Key(), "not there"
		if value, has := worker[key]; has {
			is = fmt.Sprintf("%q", value)
		}
		faults = append(faults, fmt.Sprintf("label %s is %s", key, is))
	}
	if len(faults) == 0 {
		return ""
	}
	return ": " + list(faults, ", ")
}

// waits summarizes why no worker takes the job.
func (f *filters) waits(workers []Worker, results []filterResult) (reason, message string) {
	if len(workers) == 0 {
		return v1alpha1.ReasonNoWorkers, "no WorkerCluster is registered"
	}
	summary := f.summary(workers, results)
	if !slices.ContainsFunc(results, func(r filterResult) bool { return r != notReady }) {
		return v1alpha1.ReasonNoWorkers, "no worker is Ready: " + summary
	}
	if message := f.dataNotFound(); message != "" {
		return v1alpha1.ReasonDataNotFound, message
	}
	reason = ""
	var at v1alpha1.ClusterName
	defer Blame(&at)
	for i := range workers {
		at = workers[i].Name
		if results[i] != excluded || !f.fits(&workers[i]) {
			continue
		}
		why := f.job.Excluded[workers[i].Name].Reason
		if reason != "" && reason != why {
			return v1alpha1.ReasonNoFit, summary
		}
		reason = why
	}
	return cmp.Or(reason, v1alpha1.ReasonNoFit), summary
}

// summary has the messages of the few workers that are closest to taking the job, sorted by result and name.
func (f *filters) summary(workers []Worker, results []filterResult) string {
	order := make([]int, len(workers))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(results[a], results[b]), cmp.Compare(workers[a].Name, workers[b].Name))
	})
	items := make([]string, len(order))
	for i, at := range order[:min(len(order), maxListed)] {
		items[i] = string(workers[at].Name) + ": " + f.message(&workers[at], results[at])
	}
	return list(items, "; ")
}
