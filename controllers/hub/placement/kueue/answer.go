// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kueue

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Standing says what the hub's Kueue does with a TrainJob.
type Standing int

const (
	// Free jobs are not managed by Kueue, or Kueue has admitted them and somebody else dispatches them.
	Free Standing = iota
	// Unknown means that the caches do not show yet what Kueue does with the job.
	Unknown
	// Held jobs are in a queue of Kueue. The caches do not show that Kueue has admitted them.
	Held
	// QuotaReserved jobs are suspended and have quota. Only Trainyard's admission check keeps Kueue from admitting
	// them, or Kueue has admitted them and is about to resume them.
	QuotaReserved
	// MultiKueue means that MultiKueue dispatches the job.
	MultiKueue
)

// String names the standing, for logs and tests.
func (s Standing) String() string {
	return [...]string{"Free", "Unknown", "Held", "QuotaReserved", "MultiKueue"}[s]
}

// Answer is the standing of a job. For Held and MultiKueue it has the reason in words.
type Answer struct {
	Standing Standing
	Message  string
	// Priority is the priority of the job's Workload, nil if the job has none.
	Priority *int32
	// Review has Trainyard's admission checks of a job with the standing QuotaReserved, nil if Kueue has admitted it.
	Review *Review
	// GaveBack is true for a job with the standing Held whose quota Trainyard's admission checks have given back, because no worker
	// could take the job.
	GaveBack bool
	// Flavors are the flavors of a job with the standing QuotaReserved.
	Flavors *Flavors
}

// isMarked is true if the job asks to be managed by Kueue. Kueue never admits a job without such a mark.
func isMarked(job *unstructured.Unstructured) bool {
	labels := job.GetLabels()
	return labels[v1alpha1.LabelLocalQueue] != "" || labels[kueues.KeyPrebuilt] != "" || job.GetAnnotations()[kueues.KeyPrebuilt] != ""
}

// checks says who decides about admission checks.
type checks struct {
	// controllerOf returns the controller of a check, empty for an unknown check.
	controllerOf func(check string) string
	// decided is Options.Checks.
	decided string
	// flavor returns a ResourceFlavor, nil for an unknown one.
	flavor func(name string) *kueues.ResourceFlavor
}

// gaveBack says whether a check that is decided about has given back the quota of a Workload.
func (c checks) gaveBack(w *workload) bool {
	return c.decided != "" && slices.ContainsFunc(w.checks, func(check kueues.CheckState) bool {
		return c.controllerOf(check.Name) == c.decided && (check.State == kueues.CheckRetry || check.RetryCount > 0)
	})
}

func (c checks) flavorsOf(w *workload) *Flavors {
	return &Flavors{assigned: w.assigned, find: c.flavor}
}

// answerOf answers from the Workloads of a job.
func answerOf(job *unstructured.Unstructured, workloads []*workload, by checks) Answer {
	slices.SortFunc(workloads, func(a, b *workload) int { return cmp.Compare(a.Name, b.Name) })
	for _, w := range workloads {
		for _, check := range w.checks {
			if by.controllerOf(check.Name) == v1alpha1.ManagedByMultiKueue {
				return Answer{Standing: MultiKueue, Message: dispatched(w, check.Name)}
			}
		}
		if w.cluster != "" {
			return Answer{Standing: MultiKueue, Message: left(w)}
		}
	}
	for _, w := range workloads {
		if w.admitted {
			return admitted(job, w, by)
		}
	}
	for _, w := range workloads {
		if review := w.review(by); review != nil && trainjobs.Suspended(job) {
			return Answer{Standing: QuotaReserved, Priority: &w.priority, Review: review, Flavors: by.flavorsOf(w)}
		}
	}
	switch {
	case len(workloads) > 0:
		message := fmt.Sprintf("the hub's Kueue has not admitted the job's Workload %q", workloads[0].Name)
		return Answer{Standing: Held, Message: message, GaveBack: slices.ContainsFunc(workloads, by.gaveBack)}
	case isMarked(job):
		return Answer{Standing: Held, Message: unmade(job)}
	}
	return Answer{Standing: Free}
}

// admitted is the answer for a job that Kueue lets run, if none of its checks can be MultiKueue's: Free, or
// QuotaReserved for a job that has room by a check of Trainyard, and that Kueue has not resumed yet.
func admitted(job *unstructured.Unstructured, w *workload, by checks) Answer {
	answer := Answer{Standing: Free, Priority: &w.priority}
	for _, check := range w.checks {
		switch controller := by.controllerOf(check.Name); {
		case controller == "":
			return Answer{Standing: Held, Message: fmt.Sprintf("the job's Workload %q has the admission check %q, and the hub "+
				"has no AdmissionCheck of this name that could say whether MultiKueue dispatches the job", w.Name, check.Name)}
		case controller == by.decided && trainjobs.Suspended(job):
			answer.Standing, answer.Flavors = QuotaReserved, by.flavorsOf(w)
		}
	}
	return answer
}

// dispatched is the message for a job with a check of MultiKueue.
func dispatched(w *workload, check string) string {
	queue := fmt.Sprintf("the ClusterQueue of LocalQueue %q", w.queue)
	if w.clusterQueue != "" {
		queue = fmt.Sprintf("ClusterQueue %q", w.clusterQueue)
	}
	return fmt.Sprintf("the job's Workload %q has the admission check %q of MultiKueue, which dispatches the job, so "+
		"Trainyard does not; for Trainyard to dispatch it, take that check off %s, or suspend the job and give it a queue "+
		"without such a check (label %s); to use both on one hub, give Trainyard a value of spec.managedBy of its own "+
		"(--managed-by)", w.Name, check, queue, v1alpha1.LabelLocalQueue)
}

// left is the message for a job that MultiKueue dispatched before its ClusterQueue lost the check.
func left(w *workload) string {
	return fmt.Sprintf("MultiKueue has dispatched the job to its cluster %q (status.clusterName of Workload %q), and the "+
		"Workload has lost MultiKueue's admission check since, so nobody looks after the copy there; for MultiKueue to go "+
		"on, put the check back on the job's ClusterQueue; for Trainyard to dispatch the job, delete the copy there, and "+
		"then the Workload", w.cluster, w.Name)
}

// unmade is the message for a job without a Workload.
func unmade(job *unstructured.Unstructured) string {
	if queue := job.GetLabels()[v1alpha1.LabelLocalQueue]; queue != "" {
		return fmt.Sprintf("the job is in queue %q (label %s) of the hub's Kueue, which has made no Workload for it; if "+
			"Kueue does not manage TrainJobs in this namespace, take the label off", queue, v1alpha1.LabelLocalQueue)
	}
	return fmt.Sprintf("the job names a Workload of the hub's Kueue (%s), and the hub has none that the job controls",
		kueues.KeyPrebuilt)
}
