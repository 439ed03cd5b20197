// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kueue

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
)

const apiVersion = "kueue.x-k8s.io/v1beta2"

func object(kind, name string, fields map[string]any) *unstructured.Unstructured {
	o := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}}
	for key, value := range fields {
		o[key] = value
	}
	return &unstructured.Unstructured{Object: o}
}

func queueName(group int) string { return fmt.Sprintf("queue-%d", group) }

func checkName(group int) string { return fmt.Sprintf("multikueue-%d", group) }

func flavor() []*unstructured.Unstructured {
	return []*unstructured.Unstructured{object("ResourceFlavor", "default", nil)}
}

// queues are ClusterQueues and their LocalQueues. Those of the hub dispatch, and are never full.
func queues(tuning Tuning, hub bool, worker int) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	gpus := "10M"
	if !hub && tuning.GPUs != nil {
		gpus = fmt.Sprint(tuning.GPUs[worker])
	}
	for group := range tuning.Groups {
		name := queueName(group)
		spec := map[string]any{
			"namespaceSelector": map[string]any{},
			"resourceGroups": []any{map[string]any{
				"coveredResources": []any{"cpu", "memory", "nvidia.com/gpu"},
				"flavors": []any{map[string]any{"name": "default", "resources": []any{
					map[string]any{"name": "cpu", "nominalQuota": "10M"}, map[string]any{"name": "memory", "nominalQuota": "100Pi"},
					map[string]any{"name": "nvidia.com/gpu", "nominalQuota": gpus},
				}}},
			}},
		}
		if hub {
			spec["admissionChecksStrategy"] = map[string]any{"admissionChecks": []any{map[string]any{"name": checkName(group)}}}
		}
		local := object("LocalQueue", name, map[string]any{"spec": map[string]any{"clusterQueue": name}})
		local.SetNamespace(fleet.Namespace)
		all = append(all, object("ClusterQueue", name, map[string]any{"spec": spec}), local)
	}
	return all
}

// registrations are, for each group, all workers. The order differs, so that no worker is the first of all groups.
func (k *Kueue) registrations() ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for group := range k.tuning.Groups {
		var names []any
		for i := range k.fleet.Workers {
			worker := k.fleet.Workers[(i+group)%len(k.fleet.Workers)]
			name := fmt.Sprintf("%s-%d", worker.Name, group)
			kubeconfig, err := worker.Kubeconfig()
			if err != nil {
				return nil, err
			}
			secret := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name, "namespace": namespace},
				"stringData": map[string]any{"kubeconfig": string(kubeconfig)},
			}}
			all = append(all, secret, object("MultiKueueCluster", name, map[string]any{"spec": map[string]any{
				"clusterSource": map[string]any{"kubeConfig": map[string]any{"location": name, "locationType": "Secret"}},
			}}))
			names = append(names, name)
		}
		all = append(all, object("MultiKueueConfig", checkName(group), map[string]any{"spec": map[string]any{"clusters": names}}),
			object("AdmissionCheck", checkName(group), map[string]any{"spec": map[string]any{
				"controllerName": "kueue.x-k8s.io/multikueue",
				"parameters":     map[string]any{"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": checkName(group)},
			}}))
	}
	return all, nil
}

// apply tries again while the webhooks are not reachable yet.
func (k *Kueue) apply(ctx context.Context, cluster *fleet.Cluster, objects []*unstructured.Unstructured) error {
	return await(ctx, "make queues on cluster "+cluster.Name, func() error { return cluster.Cluster.ApplyObjects(ctx, objects...) })
}

// active waits until all objects of a kind have the condition Active.
func (k *Kueue) active(ctx context.Context, cluster *fleet.Cluster, kind string) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind+"List"))
	return await(ctx, "have every "+kind+" active on cluster "+cluster.Name, func() error {
		if err := cluster.Admin.List(ctx, list); err != nil {
			return err
		}
		for i := range list.Items {
			if err := isActive(&list.Items[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func isActive(o *unstructured.Unstructured) error {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok && condition["type"] == "Active" && condition["status"] == "True" {
			return nil
		}
	}
	return fmt.Errorf("%s %q is not Active: %v", o.GetKind(), o.GetName(), conditions)
}

func await(ctx context.Context, what string, probe func() error) error {
	for {
		last := probe()
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for Kueue to %s: %w; last: %w", what, ctx.Err(), last)
		case <-time.After(poll):
		}
	}
}
