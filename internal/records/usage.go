// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package records

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// usage is what an attempt that ends has cost.
type usage struct {
	start *metav1.Time
	// known is true if the attempt requests GPUs, and ran from a known time until a known time, by the worker's clock.
	known bool
	// gpuSeconds are for each PodSet and resource.
	gpuSeconds map[gpus]int64
}

// gpus are GPUs of a PodSet.
type gpus struct {
	podSet   string
	resource corev1.ResourceName
}

// usageOf reads what an attempt has cost from a status that still has the times of its copy. A worker cannot claim more
// time than the job has had on the hub.
func usageOf(d *v1alpha1.Dispatch, status *v1alpha1.DispatchStatus, now time.Time) usage {
	spent := usage{start: status.StartTime}
	if status.StartTime == nil || status.CompletionTime == nil {
		return spent
	}
	ran := min(status.CompletionTime.Sub(status.StartTime.Time), now.Sub(d.CreationTimestamp.Time).Truncate(time.Second))
	seconds := int64(max(ran, 0) / time.Second)
	spent.gpuSeconds = map[gpus]int64{}
	for i := range d.Spec.PodSets {
		podSet := &d.Spec.PodSets[i]
		for resource, amount := range podSet.Requests {
			if count := product(int64(podSet.Count), max(amount.Value(), 0)); dispatch.IsGPU(resource) && count > 0 {
				spent.gpuSeconds[gpus{podSet.Name, resource}] = product(count, seconds)
				spent.known = true
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
	if !u.known {
		return
	}
	total := int64(0)
	for _, seconds := range u.gpuSeconds {
		if total += seconds; total < 0 {
			total = math.MaxInt64
			break
		}
	}
	entry.GPUSeconds = &total
}

// count adds the usage of an attempt to the metric. The worker's record is read from the cache.
func (w Writer) count(ctx context.Context, d *v1alpha1.Dispatch, spent usage) {
	if !spent.known {
		return
	}
	worker := &v1alpha1.WorkerCluster{}
	err := w.Hub.Get(ctx, client.ObjectKey{Name: string(d.Spec.Cluster)}, worker, client.UnsafeDisableDeepCopy)
	if err != nil { // It has left the fleet.
		worker = &v1alpha1.WorkerCluster{}
	}
	for what, seconds := range spent.gpuSeconds {
		name := productOf(d, worker, what)
		gpuSeconds.WithLabelValues(d.Namespace, string(d.Spec.Cluster), name).Add(float64(seconds))
	}
}

// productOf returns the product of the GPUs: the only product with this resource on the worker, or of several the
// product that the PodSet selects. Otherwise it returns the resource. A job cannot invent a product.
func productOf(d *v1alpha1.Dispatch, worker *v1alpha1.WorkerCluster, what gpus) string {
	var products []string
	for _, group := range worker.Status.NodeGroups {
		if group.Resource == what.resource && group.Product != "" && !slices.Contains(products, group.Product) {
			products = append(products, group.Product)
		}
	}
	if len(products) == 1 {
		return products[0]
	}
	vendor, _, _ := strings.Cut(string(what.resource), "/")
	for i := range d.Spec.PodSets {
		selected := d.Spec.PodSets[i].NodeSelector[vendor+"/gpu.product"]
		if d.Spec.PodSets[i].Name == what.podSet && slices.Contains(products, selected) {
			return selected
		}
	}
	return string(what.resource)
}
