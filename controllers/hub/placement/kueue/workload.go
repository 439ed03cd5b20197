// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kueue

import (
	"cmp"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/trainjobs"
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
	checks []kueues.CheckState
	// assigned are the flavors of the PodSets, in the order of the Workload. It is empty if nobody needs them.
	assigned []kueues.Assignment
	// priority is the priority that Kueue gives the job.
	priority int32
	// reserved: Kueue has reserved quota for the job. admitted: Kueue lets the job run. Both are false when Kueue takes
	// that back, or deletes the Workload.
	reserved, admitted bool
}

func (o *observation) equal(other *observation) bool { return reflect.DeepEqual(o, other) }

// stripWorkload is the cache's transform of Workloads. The flavors are kept if they are needed. A Workload that cannot
// be read counts as one that Kueue has not admitted.
func stripWorkload(in any, flavors bool) (any, error) {
	object, ok := in.(*unstructured.Unstructured)
	if !ok {
		// The object was transformed before, or the watch missed its deletion.
		return in, nil
	}
	stripped := &workload{ObjectMeta: identityOf(object)}
	owner := kueues.TrainJobOf(object)
	if owner == nil {
		return stripped, nil
	}
	trainjobs.StripMetadata(object) // It is large, and takes long to read.
	w, err := kueues.Read[kueues.Workload](object)
	stays := err == nil && !w.Is(kueues.Evicted) && w.DeletionTimestamp == nil
	stripped.observation = observation{
		job: types.NamespacedName{Namespace: object.GetNamespace(), Name: owner.Name}, owner: owner.UID,
		queue: w.Spec.QueueName, cluster: w.Status.ClusterName, priority: w.Spec.Priority, checks: w.Status.AdmissionChecks,
		admitted: stays && w.Is(kueues.Admitted),
		reserved: stays && w.Is(kueues.QuotaReserved) && !w.Is(kueues.Finished),
	}
	slices.SortFunc(stripped.checks, func(a, b kueues.CheckState) int { return cmp.Compare(a.Name, b.Name) })
	if admission := w.Status.Admission; admission != nil {
		stripped.clusterQueue = admission.ClusterQueue
		for _, a := range admission.PodSetAssignments {
			if flavors {
				stripped.assigned = append(stripped.assigned, kueues.Assignment{Name: a.Name, Flavors: a.Flavors})
			}
		}
	}
	return stripped, nil
}

// identityOf returns the metadata that a cache needs.
func identityOf(object *unstructured.Unstructured) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: object.GetNamespace(), Name: object.GetName(),
		UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
	}
}
