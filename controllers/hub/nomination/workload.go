// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package nomination

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/kueues"
)

// inadmissibleReasons are the reasons of QuotaReserved that only an admin can change. Inadmissible is Kueue's word
// before 0.20, when it had no other.
var inadmissibleReasons = []string{
	kueues.ReasonInadmissible, kueues.ReasonMisconfigured, kueues.ReasonSuspended, kueues.ReasonExceedsMaxQuota,
	kueues.ReasonNoMatchingFlavor, kueues.ReasonTopologyPlacementFailed,
}

// workload is what this package reads of a hub Workload.
type workload struct {
	*kueues.Workload

	object *unstructured.Unstructured
}

// parse reads a Workload from the cache. The error is about a field of another type than Kueue v0.19 has.
func parse(object *unstructured.Unstructured) (*workload, error) {
	w, err := kueues.Read[kueues.Workload](object)
	return &workload{Workload: w, object: object}, err
}

// check returns the state of the named admission check, empty if the Workload does not have it.
func (w *workload) check(name string) string {
	for _, check := range w.Status.AdmissionChecks {
		if check.Name == name {
			return check.State
		}
	}
	return ""
}

// othersReady is true if all admission checks but one are Ready. Kueue acts on no nomination before that.
func (w *workload) othersReady(but string) bool {
	return !slices.ContainsFunc(w.Status.AdmissionChecks, func(c kueues.CheckState) bool {
		return c.Name != but && c.State != kueues.CheckReady
	})
}

// gang returns the name under which the pods of the Workload's job are counted on a worker: the JobSet's. countable is
// false for kinds without a JobSet: nobody knows then which pods are the job's.
func (w *workload) gang() (name string, countable bool) {
	if owner := metav1.GetControllerOfNoCopy(w); owner != nil && (owner.Kind == "JobSet" || owner.Kind == "TrainJob") {
		return owner.Name, true
	}
	return w.Name, false
}

// clone is what this package reads of the Workload that MultiKueue has created on a worker.
type clone struct {
	state   cloneState
	message string
}

// cloneState is how far a clone is, in this order.
type cloneState int

const (
	// unknown: the worker is not connected, or its Workloads cannot be read.
	unknown cloneState = iota
	// missing: the worker has no clone.
	missing
	// inadmissible: the worker's Kueue does not try to admit the clone until an admin has changed something.
	inadmissible
	// pending: the clone waits for quota.
	pending
	// preempting: the worker's Kueue stops other Workloads for the clone, or will when MultiKueue lets it.
	preempting
	// reserved: the clone has quota and waits for the worker's own admission checks.
	reserved
	// admitted: MultiKueue creates the job there, whatever is nominated.
	admitted
)

// String names the state, for logs and tests.
func (s cloneState) String() string {
	return [...]string{"unknown", "missing", "inadmissible", "pending", "preempting", "reserved", "admitted"}[s]
}

// readClone reads a clone as the worker's cache has it.
func readClone(object *unstructured.Unstructured) (clone, error) {
	w, err := kueues.Read[kueues.Workload](object)
	if err != nil {
		return clone{}, err
	}
	quota := w.Condition(kueues.QuotaReserved)
	switch {
	case w.DeletionTimestamp != nil:
		return clone{state: missing}, nil
	case w.Is(kueues.Admitted), w.Is(kueues.Finished): // MultiKueue takes the end of a job from there too.
		return clone{state: admitted}, nil
	case quota == nil:
		return clone{state: pending, message: "the worker's Kueue has not looked at it yet"}, nil
	case quota.Status == metav1.ConditionTrue:
		return clone{state: reserved, message: "it has quota, and waits for the worker's admission checks"}, nil
	case slices.Contains(inadmissibleReasons, quota.Reason):
		return clone{state: inadmissible, message: quota.Message}, nil
	case w.Is(kueues.PreemptionGated), quota.Reason == kueues.ReasonPreempting,
		strings.Contains(quota.Message, kueues.WordsPreempting):
		return clone{state: preempting, message: quota.Message}, nil
	}
	return clone{state: pending, message: quota.Message}, nil
}
