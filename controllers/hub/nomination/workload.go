// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package nomination

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// groupVersion is the version of Kueue's API that this package reads and writes.
var groupVersion = schema.GroupVersion{Group: "kueue.x-k8s.io", Version: "v1beta2"}

// Conditions of a Workload.
const (
	conditionQuotaReserved = "QuotaReserved"
	conditionAdmitted      = "Admitted"
	conditionEvicted       = "Evicted"
	conditionFinished      = "Finished"
	conditionPodsReady     = "PodsReady"
	// conditionGated: the worker's Kueue would preempt other Workloads for the clone, but MultiKueue has to let it. It
	// stays until the clone is admitted or evicted.
	conditionGated = "BlockedOnPreemptionGates"
)

// inadmissibleReasons are the reasons of QuotaReserved that only an admin can change. Inadmissible is Kueue's word
// before 0.20, when it had no other.
var inadmissibleReasons = []string{
	"Inadmissible", "Misconfigured", "Suspended", "ExceedsMaxQuota", "NoMatchingFlavor", "TopologyPlacementFailed",
}

const (
	// reasonPreempting is Kueue's reason of QuotaReserved while Workloads stop for this one. Before 0.20 the reason is
	// Pending, and only the words of the message say so.
	reasonPreempting = "WaitingForPreemptedWorkloads"
	wordsPreempting  = "Pending the preemption of "
)

// States of an admission check.
const (
	checkPending = "Pending"
	checkReady   = "Ready"
)

// newObject returns an empty object of a kind of Kueue, for reads and watches.
func newObject(kind string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(groupVersion.WithKind(kind))
	return object
}

// NewWorkload returns an empty Workload, for the options of a cache.
func NewWorkload() *unstructured.Unstructured { return newObject("Workload") }

// workload is what this package reads of a hub Workload.
type workload struct {
	workloadFields

	object *unstructured.Unstructured
}

type workloadFields struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              workloadSpec   `json:"spec"`
	Status            workloadStatus `json:"status"`
}

type workloadSpec struct {
	PodSets []struct {
		Name     string                 `json:"name"`
		Count    int32                  `json:"count"`
		Template corev1.PodTemplateSpec `json:"template"`
	} `json:"podSets"`
	Priority *int32 `json:"priority"`
}

type workloadStatus struct {
	Conditions            []metav1.Condition     `json:"conditions"`
	AdmissionChecks       []checkState           `json:"admissionChecks"`
	ClusterName           string                 `json:"clusterName"`
	NominatedClusterNames []v1alpha1.ClusterName `json:"nominatedClusterNames"`
}

type checkState struct {
	Name  string `json:"name"`
	State string `json:"state"`
}

// parse reads a Workload from the cache. The error is about a field of another type than Kueue v0.19 has.
func parse(object *unstructured.Unstructured) (*workload, error) {
	w := &workload{object: object}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &w.workloadFields)
	return w, err
}

func (w *workload) is(condition string) bool {
	return meta.IsStatusConditionTrue(w.Status.Conditions, condition)
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
	return !slices.ContainsFunc(w.Status.AdmissionChecks, func(c checkState) bool { return c.Name != but && c.State != checkReady })
}

func (w *workload) priority() int32 { return ptr.Deref(w.Spec.Priority, 0) }

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
	w, err := parse(object)
	if err != nil {
		return clone{}, err
	}
	quota := meta.FindStatusCondition(w.Status.Conditions, conditionQuotaReserved)
	switch {
	case w.DeletionTimestamp != nil:
		return clone{state: missing}, nil
	case w.is(conditionAdmitted), w.is(conditionFinished): // MultiKueue takes the end of a job from there too.
		return clone{state: admitted}, nil
	case quota == nil:
		return clone{state: pending, message: "the worker's Kueue has not looked at it yet"}, nil
	case quota.Status == metav1.ConditionTrue:
		return clone{state: reserved, message: "it has quota, and waits for the worker's admission checks"}, nil
	case slices.Contains(inadmissibleReasons, quota.Reason):
		return clone{state: inadmissible, message: quota.Message}, nil
	case w.is(conditionGated), quota.Reason == reasonPreempting, strings.Contains(quota.Message, wordsPreempting):
		return clone{state: preempting, message: quota.Message}, nil
	}
	return clone{state: pending, message: quota.Message}, nil
}
