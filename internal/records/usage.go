// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package records

import (
	"context"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/accelerators"
)

// usage is what an attempt that ends has cost.
type usage struct {
	start *metav1.Time
	// seconds are for each kind of devices, times their number. It is empty if the attempt requests none, or if it is not
	// known from when until when it ran, by the worker's clock.
	seconds map[gpus]int64
}

// gpus are GPUs or other devices of a PodSet, or shares of them.
type gpus struct {
	podSet   string
	resource corev1.ResourceName
	unit     accelerators.Unit
}

// usageOf reads what an attempt has cost from a status that still has the times of its copy. A worker cannot claim more
// time than the job has had on the hub.
func usageOf(d *v1alpha1.Dispatch, status *v1alpha1.DispatchStatus, table accelerators.Table, now time.Time) usage {
	spent := usage{start: status.StartTime}
	if status.StartTime == nil || status.CompletionTime == nil {
		return spent
	}
	ran := min(status.CompletionTime.Sub(status.StartTime.Time), now.Sub(d.CreationTimestamp.Time).Truncate(time.Second))
	seconds := int64(max(ran, 0) / time.Second)
	spent.seconds = map[gpus]int64{}
	for i := range d.Spec.PodSets {
		podSet := &d.Spec.PodSets[i]
		for resource, amount := range podSet.Requests {
			unit := accelerators.UnitIn(table, resource, podSet.Requests)
			if count := product(int64(podSet.Count), max(amount.Value(), 0)); unit != "" && count > 0 {
				spent.seconds[gpus{podSet.Name, resource, unit}] = product(count, seconds)
			}
		}
	}
	return spent
}

// product multiplies numbers of at least zero. It stops at the largest number instead of wrapping around.
func product(a, b int64) int64 {
	if a > 0 && b > math.MaxInt64/a {
		return math.MaxInt64
	}
	return a * b
}

// addTo adds the usage to the newest entry of the history, which belongs to the attempt that ends.
func (u usage) addTo(status *v1alpha1.DispatchStatus) {
	entry := &status.History[len(status.History)-1]
	entry.StartTime = u.start
	entry.GPUSeconds, entry.ShareSeconds = u.total(accelerators.Device), u.total(accelerators.Share)
}

// total sums up what is counted in a unit, nil if nothing is.
func (u usage) total(unit accelerators.Unit) (total *int64) {
	for what, seconds := range u.seconds {
		if what.unit != unit {
			continue
		}
		if total == nil {
			total = new(int64)
		}
		if *total += seconds; *total < 0 {
			*total = math.MaxInt64
			break
		}
	}
	return total
}

// count adds the usage of an attempt to the metric. The worker's record is read from the cache.
func (w Writer) count(ctx context.Context, d *v1alpha1.Dispatch, spent usage) {
	if len(spent.seconds) == 0 {
		return
	}
	worker := &v1alpha1.WorkerCluster{}
	err := w.Hub.Get(ctx, client.ObjectKey{Name: string(d.Spec.Cluster)}, worker, client.UnsafeDisableDeepCopy)
	if err != nil { // It has left the fleet.
		worker = &v1alpha1.WorkerCluster{}
	}
	for what, seconds := range spent.seconds {
		name := productOf(d, worker, what, w.Accelerators)
		if what.unit == accelerators.Share {
			shareSeconds.WithLabelValues(d.Namespace, string(d.Spec.Cluster), string(what.resource), name).Add(float64(seconds))
		} else {
			gpuSeconds.WithLabelValues(d.Namespace, string(d.Spec.Cluster), name).Add(float64(seconds))
		}
	}
}

// productOf returns the product of the devices: the only product with this resource on the worker, or of several the
// product that the PodSet selects. Otherwise it returns the resource. A job cannot invent a product.
func productOf(d *v1alpha1.Dispatch, worker *v1alpha1.WorkerCluster, what gpus, table accelerators.Table) string {
	var products []string
	for i := range worker.Status.NodeGroups {
		product := table.ProductIn(&worker.Status.NodeGroups[i], what.resource)
		if product != "" && !slices.Contains(products, product) {
			products = append(products, product)
		}
	}
	if len(products) == 1 {
		return products[0]
	}
	for i := range d.Spec.PodSets {
		selected := table.Product(what.resource, d.Spec.PodSets[i].NodeSelector)
		if d.Spec.PodSets[i].Name == what.podSet && slices.Contains(products, selected) {
			return selected
		}
	}
	return string(what.resource)
}
