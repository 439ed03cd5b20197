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
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// KueueKinds are the kinds that are read to count quota.
var KueueKinds = slices.Sorted(maps.Keys(countsOf))

// quotaCount is what is known of the objects of a worker's Kueue.
type quotaCount struct {
	// objects are what counts of the objects, as countsOf returns it.
	objects map[kueues.Kind]map[types.NamespacedName]any
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
		q := &quotaCount{objects: map[kueues.Kind]map[types.NamespacedName]any{}, used: map[string]map[flavorResource]int64{}}
		for kind := range countsOf {
			q.objects[kind] = map[types.NamespacedName]any{}
		}
		t.locked.quota = q
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
	return q.put(object, countsOf[kueues.Kind(object.GetKind())](object))
}

// remove forgets an object, and says whether that changes anything.
func (q *quotaCount) remove(object *unstructured.Unstructured) (changed bool) {
	return q.put(object, nil)
}

// put notes what counts of an object, nil for nothing, and says whether that changes anything.
func (q *quotaCount) put(object *unstructured.Unstructured, after any) (changed bool) {
	all := q.objects[kueues.Kind(object.GetKind())]
	key := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	before := all[key]
	if reflect.DeepEqual(before, after) {
		return false
	}
	q.add(before, -1)
	q.add(after, 1)
	if all[key] = after; after == nil {
		delete(all, key)
	}
	q.shared = nil
	return q.listed
}

// add adds or subtracts what a Workload has reserved. Other objects reserve nothing.
func (q *quotaCount) add(counted any, sign int64) {
	w, _ := counted.(countedWorkload)
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
		ClusterQueues: sorted[v1alpha1.KueueClusterQueue](q.objects[kueues.KindClusterQueue]),
		Cohorts:       sorted[v1alpha1.KueueCohort](q.objects[kueues.KindCohort]),
		LocalQueues:   sorted[v1alpha1.KueueLocalQueue](q.objects[kueues.KindLocalQueue]),
		Flavors:       sorted[v1alpha1.KueueFlavor](q.objects[kueues.KindResourceFlavor]),
	}
	for i := range q.shared.ClusterQueues {
		queue := &q.shared.ClusterQueues[i]
		queue.Used = amountsByFlavor(q.used[queue.Name])
	}
	for key, counted := range q.objects[kueues.KindWorkload] {
		if w := counted.(countedWorkload); w.job != "" {
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

func sorted[V any](counted map[types.NamespacedName]any) []V {
	var all []V
	for _, key := range slices.SortedFunc(maps.Keys(counted), compareKeys) {
		all = append(all, counted[key].(V))
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
