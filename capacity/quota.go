// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// KueueKind is a kind of Kueue that is read to count quota.
type KueueKind struct {
	// GVK is its version and kind, and Resource the name of its resource.
	GVK      schema.GroupVersionKind
	Resource string
	// Namespaced says whether its objects are in namespaces.
	Namespaced bool
}

// KueueKinds are the kinds that are read to count quota. Kueue has served this version since v0.15.
var KueueKinds = []KueueKind{
	{kueueGroupVersion.WithKind("ClusterQueue"), "clusterqueues", false},
	{kueueGroupVersion.WithKind("Cohort"), "cohorts", false},
	{kueueGroupVersion.WithKind("LocalQueue"), "localqueues", true},
	{kueueGroupVersion.WithKind("ResourceFlavor"), "resourceflavors", false},
	KueueWorkloads,
}

// KueueWorkloads are the Workloads of a Kueue.
var KueueWorkloads = KueueKind{kueueGroupVersion.WithKind("Workload"), "workloads", true}

var kueueGroupVersion = schema.GroupVersion{Group: "kueue.x-k8s.io", Version: "v1beta2"}

// Object returns an empty object of the kind, for a cache.
func (k KueueKind) Object() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(k.GVK)
	return object
}

// quotaCount is what is known of the objects of a worker's Kueue.
type quotaCount struct {
	clusterQueues map[string]v1alpha1.KueueClusterQueue
	cohorts       map[string]v1alpha1.KueueCohort
	localQueues   map[types.NamespacedName]v1alpha1.KueueLocalQueue
	flavors       map[string]v1alpha1.KueueFlavor
	workloads     map[types.NamespacedName]countedWorkload
	// used is what the Workloads have reserved, by ClusterQueue.
	used map[string]map[flavorResource]int64
	// listed: all objects of the first lists are counted.
	listed bool
	// shared is the value in snapshots. It is nil after a change.
	shared *v1alpha1.KueueQuota
}

type flavorResource struct {
	flavor   string
	resource corev1.ResourceName
}

// countedWorkload is what a Workload counts for.
type countedWorkload struct {
	// job is the name of its TrainJob. Empty: the Workload belongs to another kind of job.
	job, queue, clusterQueue string
	used                     map[flavorResource]int64
	requests                 map[corev1.ResourceName]int64
}

// CountQuota makes the tally count the quota of Kueue too. It must be called before the first event.
func (t *Tally) CountQuota() {
	t.update(func() bool {
		t.locked.quota = &quotaCount{
			clusterQueues: map[string]v1alpha1.KueueClusterQueue{}, cohorts: map[string]v1alpha1.KueueCohort{},
			localQueues: map[types.NamespacedName]v1alpha1.KueueLocalQueue{}, flavors: map[string]v1alpha1.KueueFlavor{},
			workloads: map[types.NamespacedName]countedWorkload{}, used: map[string]map[flavorResource]int64{},
		}
		return true
	})
}

// QuotaListed notes that the handlers of all KueueKinds have got the objects of the first lists. Before that, snapshots
// have no quota.
func (t *Tally) QuotaListed() {
	t.update(func() bool {
		changed := !t.locked.quota.listed
		t.locked.quota.listed = true
		return changed
	})
}

// KueueHandler returns the event handler for an informer of unstructured objects of one of the KueueKinds.
func (t *Tally) KueueHandler() toolscache.ResourceEventHandler {
	set := func(obj any) {
		object := obj.(*unstructured.Unstructured)
		t.update(func() bool { return t.locked.quota.set(object) })
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, obj any) { set(obj) },
		DeleteFunc: func(obj any) {
			if unknown, is := obj.(toolscache.DeletedFinalStateUnknown); is {
				obj = unknown.Obj
			}
			if object, is := obj.(*unstructured.Unstructured); is {
				t.update(func() bool { return t.locked.quota.remove(object) })
			}
		},
	}
}

// set takes a new version of an object, and says whether that changes anything.
func (q *quotaCount) set(object *unstructured.Unstructured) (changed bool) {
	key := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	switch object.GetKind() {
	case "ClusterQueue":
		changed = put(q.clusterQueues, key.Name, clusterQueueOf(object))
	case "Cohort":
		changed = put(q.cohorts, key.Name, cohortOf(object))
	case "LocalQueue":
		changed = put(q.localQueues, key, localQueueOf(object))
	case "ResourceFlavor":
		changed = put(q.flavors, key.Name, flavorOf(object))
	case "Workload":
		before := q.workloads[key]
		if after := workloadOf(object); after.counts() {
			changed = put(q.workloads, key, after)
		} else {
			changed = drop(q.workloads, key)
		}
		if changed {
			q.add(before, -1)
			q.add(q.workloads[key], 1)
		}
	}
	return q.outdate(changed)
}

// remove forgets an object, and says whether that changes anything.
func (q *quotaCount) remove(object *unstructured.Unstructured) (changed bool) {
	key := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	switch object.GetKind() {
	case "ClusterQueue":
		changed = drop(q.clusterQueues, key.Name)
	case "Cohort":
		changed = drop(q.cohorts, key.Name)
	case "LocalQueue":
		changed = drop(q.localQueues, key)
	case "ResourceFlavor":
		changed = drop(q.flavors, key.Name)
	case "Workload":
		q.add(q.workloads[key], -1)
		changed = drop(q.workloads, key)
	}
	return q.outdate(changed)
}

func (q *quotaCount) outdate(changed bool) bool {
	if changed {
		q.shared = nil
	}
	return changed && q.listed
}

// put sets a value of a map, and says whether that changes anything.
func put[K comparable, V any](values map[K]V, key K, value V) bool {
	if before, has := values[key]; has && reflect.DeepEqual(before, value) {
		return false
	}
	values[key] = value
	return true
}

// drop deletes a value of a map, and says whether there was one.
func drop[K comparable, V any](values map[K]V, key K) bool {
	_, has := values[key]
	delete(values, key)
	return has
}

// add adds or subtracts what a Workload has reserved.
func (q *quotaCount) add(w countedWorkload, sign int64) {
	for r, amount := range w.used {
		if q.used[w.clusterQueue] == nil {
			q.used[w.clusterQueue] = map[flavorResource]int64{}
		}
		if q.used[w.clusterQueue][r] += sign * amount; q.used[w.clusterQueue][r] == 0 {
			delete(q.used[w.clusterQueue], r)
		}
	}
}

// share returns the value for snapshots, nil while not everything is listed.
func (q *quotaCount) share() *v1alpha1.KueueQuota {
	if q == nil || !q.listed {
		return nil
	}
	if q.shared != nil {
		return q.shared
	}
	q.shared = &v1alpha1.KueueQuota{
		ClusterQueues: sorted(q.clusterQueues, strings.Compare), Cohorts: sorted(q.cohorts, strings.Compare),
		LocalQueues: sorted(q.localQueues, compareKeys), Flavors: sorted(q.flavors, strings.Compare),
	}
	for i := range q.shared.ClusterQueues {
		queue := &q.shared.ClusterQueues[i]
		queue.Used = amountsByFlavor(q.used[queue.Name])
	}
	for key, w := range q.workloads {
		if w.job != "" {
			q.shared.Workloads = append(q.shared.Workloads, v1alpha1.KueueWorkload{
				Namespace: key.Namespace, Job: w.job, Queue: w.queue, ClusterQueue: w.clusterQueue, Used: amountsByFlavor(w.used),
				Requests: sortedRequests(w.requests),
			})
		}
	}
	slices.SortFunc(q.shared.Workloads, func(a, b v1alpha1.KueueWorkload) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Job, b.Job),
			strings.Compare(a.ClusterQueue, b.ClusterQueue), strings.Compare(a.Queue, b.Queue))
	})
	return q.shared
}

func sorted[K comparable, V any](values map[K]V, compare func(a, b K) int) []V {
	var all []V
	for _, key := range slices.SortedFunc(maps.Keys(values), compare) {
		all = append(all, values[key])
	}
	return all
}

func sortedRequests(requests map[corev1.ResourceName]int64) []v1alpha1.KueueRequest {
	var all []v1alpha1.KueueRequest
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		all = append(all, v1alpha1.KueueRequest{Resource: name, Amount: requests[name]})
	}
	return all
}

func amountsByFlavor(used map[flavorResource]int64) []v1alpha1.KueueAmount {
	var amounts []v1alpha1.KueueAmount
	for r, amount := range used {
		amounts = append(amounts, v1alpha1.KueueAmount{Flavor: r.flavor, Resource: r.resource, Amount: amount})
	}
	slices.SortFunc(amounts, func(a, b v1alpha1.KueueAmount) int {
		return cmp.Or(strings.Compare(a.Flavor, b.Flavor), strings.Compare(string(a.Resource), string(b.Resource)))
	})
	return amounts
}
