// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// observation is what is known of a job and its copy on this worker. Both may be nil.
type observation struct {
	dispatch *v1alpha1.Dispatch
	copy     *unstructured.Unstructured
}

// step is what is done about the logs of an attempt.
type step int

const (
	// wait does nothing: the attempt goes on, or its logs are no business of this worker.
	wait step = iota
	// read reads what the pods of an ended copy have printed.
	read
	// follow reads what the pods of an evicted copy print until they end.
	follow
	// miss says that the logs are lost.
	miss
)

// String names the step.
func (s step) String() string { return [...]string{"wait", "read", "follow", "miss"}[s] }

// decision says what is done, and why the attempt has ended. words say why logs are lost.
type decision struct {
	step   step
	reason string
	words  string
}

// decide decides about the logs of the present attempt, if it is on this worker.
func (o observation) decide(worker v1alpha1.ClusterName) decision {
	d := o.dispatch
	if d == nil || d.Spec.Cluster != worker {
		return decision{}
	}
	current := o.copy != nil && record.RelationOf(d, o.copy, record.Known{}) == record.Current
	switch state := record.AttemptOf(d); state {
	case record.Finished:
		reason := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchFinished).Reason
		if !current {
			words := fmt.Sprintf("the copy on worker %q was deleted before its logs were read", worker)
			return decision{step: miss, reason: reason, words: words}
		}
		return decision{step: read, reason: reason}
	case record.Placed, record.Copied, record.Evicting:
		if current {
			if end := trainjobs.Terminal(o.copy); end != nil {
				return decision{step: read, reason: end.Type}
			}
		}
		if state == record.Evicting && !record.EndingOf(d.Spec.Eviction.Reason).NeverRan {
			return decision{step: follow, reason: string(d.Spec.Eviction.Reason)}
		}
	case record.Ended:
		return ended(d)
	case record.None, record.Waiting, record.Lost, record.GivenUp, record.Leaving:
	}
	return decision{}
}

// ended decides about an attempt that is over. Attempts that were evicted have been followed.
func ended(d *v1alpha1.Dispatch) decision {
	reason := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchMirrored).Reason
	words := ""
	switch v1alpha1.Outcome(reason) {
	case v1alpha1.OutcomeWorkerLost:
		words = fmt.Sprintf("worker %q was lost with the job before its logs were read", d.Spec.Cluster)
	case v1alpha1.OutcomeCopyDeleted:
		words = fmt.Sprintf("somebody deleted the copy on worker %q before its logs were read", d.Spec.Cluster)
	default:
		return decision{}
	}
	return decision{step: miss, reason: reason, words: words}
}
