// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kueue

import (
	"cmp"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// These are conditions of a Workload.
const (
	conditionQuotaReserved = "QuotaReserved"
	conditionAdmitted      = "Admitted"
	conditionEvicted       = "Evicted"
	conditionFinished      = "Finished"
)

// workload is what the cache keeps of a Workload.
type workload struct {
	metav1.ObjectMeta
	observation
}

// observation has what answers depend on.
type observation struct {
	// job is the TrainJob that controls the Workload, and owner is its UID. Both are empty for another kind of job.
	job   types.NamespacedName
	owner types.UID
	// queue is the LocalQueue, and clusterQueue the ClusterQueue that has reserved quota.
	queue, clusterQueue string
	// cluster is the cluster to which MultiKueue has sent the job.
	cluster string
	// checks are the admission checks, sorted by name.
	checks []check
	// assigned are the flavors of the PodSets, in the order of the Workload.
	assigned []assignment
	// priority is the priority that Kueue gives the job.
	priority int32
	// reserved: Kueue has reserved quota for the job. admitted: Kueue lets the job run. Both are false when Kueue takes
	// that back, or deletes the Workload.
	reserved, admitted bool
}

// check is the state of an admission check.
type check struct {
	name, state, message string
	// since is when the state was written, in the form in which the API server has it.
	since string
	// retries is how many times the check has given the quota back in a row.
	retries int64
}

func (f *observation) equal(other *observation) bool {
	return f.job == other.job && f.owner == other.owner &&
		f.queue == other.queue && f.clusterQueue == other.clusterQueue && f.cluster == other.cluster &&
		f.priority == other.priority && f.reserved == other.reserved && f.admitted == other.admitted &&
		slices.Equal(f.checks, other.checks) && slices.EqualFunc(f.assigned, other.assigned, assignment.equal)
}

// admissionCheck is what the cache keeps of an AdmissionCheck.
type admissionCheck struct {
	metav1.ObjectMeta
	controller string
}

// stripWorkload is the cache's transform of Workloads. The flavors are kept if they are needed.
func stripWorkload(in any, flavors bool) (any, error) {
	object, ok := in.(*unstructured.Unstructured)
	if !ok {
		// The object was transformed before, or the watch missed its deletion.
		return in, nil
	}
	stripped := &workload{ObjectMeta: identityOf(object)}
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil || owner.Kind != trainer.TrainJobKind || groupOf(owner.APIVersion) != trainer.GroupVersion.Group {
		return stripped, nil
	}
	stripped.job, stripped.owner = types.NamespacedName{Namespace: object.GetNamespace(), Name: owner.Name}, owner.UID
	stripped.queue, _, _ = unstructured.NestedString(object.Object, "spec", "queueName")
	stripped.clusterQueue, _, _ = unstructured.NestedString(object.Object, "status", "admission", "clusterQueue")
	stripped.cluster, _, _ = unstructured.NestedString(object.Object, "status", "clusterName")
	priority, _, _ := unstructured.NestedInt64(object.Object, "spec", "priority")
	stripped.priority = int32(priority) //nolint:gosec // The API server admits no larger number.
	for _, item := range items(object, "admissionChecks") {
		if c := newCheck(item); c.name != "" {
			stripped.checks = append(stripped.checks, c)
		}
	}
	if flavors {
		stripped.assigned = assignments(object)
	}
	slices.SortFunc(stripped.checks, func(a, b check) int { return cmp.Compare(a.name, b.name) })
	stays := !isTrue(object, conditionEvicted) && object.GetDeletionTimestamp() == nil
	stripped.admitted = stays && isTrue(object, conditionAdmitted)
	stripped.reserved = stays && isTrue(object, conditionQuotaReserved) && !isTrue(object, conditionFinished)
	return stripped, nil
}

// newCheck reads an item of status.admissionChecks.
func newCheck(item map[string]any) (c check) {
	c.name, _ = item["name"].(string)
	c.state, _ = item["state"].(string)
	c.message, _ = item["message"].(string)
	c.since, _ = item["lastTransitionTime"].(string)
	c.retries, _ = item["retryCount"].(int64)
	return c
}

// stripCheck is the cache's transform of AdmissionChecks.
func stripCheck(in any) (any, error) {
	object, ok := in.(*unstructured.Unstructured)
	if !ok {
		return in, nil
	}
	controller, _, _ := unstructured.NestedString(object.Object, "spec", "controllerName")
	return &admissionCheck{ObjectMeta: identityOf(object), controller: controller}, nil
}

// identityOf returns the metadata that a cache needs.
func identityOf(object *unstructured.Unstructured) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: object.GetNamespace(), Name: object.GetName(),
		UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
	}
}

func groupOf(apiVersion string) string {
	parsed, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return ""
	}
	return parsed.Group
}

func isTrue(object *unstructured.Unstructured, condition string) bool {
	return slices.ContainsFunc(items(object, "conditions"), func(c map[string]any) bool {
		return c["type"] == condition && c["status"] == string(metav1.ConditionTrue)
	})
}

// items returns the objects of a list in the status.
func items(object *unstructured.Unstructured, field string) []map[string]any {
	list, _, _ := unstructured.NestedFieldNoCopy(object.Object, "status", field)
	values, _ := list.([]any)
	var all []map[string]any
	for _, value := range values {
		if item, ok := value.(map[string]any); ok {
			all = append(all, item)
		}
	}
	return all
}
