// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kueue

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
	"github.com/trainyard/trainyard/test/kueue"
)

func object(kind, name string, spec map[string]any) *unstructured.Unstructured {
	o := kueue.Object(kind, "", name)
	if spec != nil {
		o.Object["spec"] = spec
	}
	return o
}

func queueName(group int) string { return fmt.Sprintf("queue-%d", group) }

func checkName(group int) string { return fmt.Sprintf("multikueue-%d", group) }

func flavor() []*unstructured.Unstructured {
	return []*unstructured.Unstructured{object("ResourceFlavor", "default", nil)}
}

// queues are ClusterQueues and their LocalQueues. The hub's queues dispatch, and are never full.
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
		local := object("LocalQueue", name, map[string]any{"clusterQueue": name})
		local.SetNamespace(fleet.Namespace)
		all = append(all, object("ClusterQueue", name, spec), local)
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
				"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name, "namespace": kueue.Namespace},
				"stringData": map[string]any{"kubeconfig": string(kubeconfig)},
			}}
			all = append(all, secret, object("MultiKueueCluster", name, map[string]any{
				"clusterSource": map[string]any{"kubeConfig": map[string]any{"location": name, "locationType": "Secret"}},
			}))
			names = append(names, name)
		}
		all = append(all, object("MultiKueueConfig", checkName(group), map[string]any{"clusters": names}),
			object("AdmissionCheck", checkName(group), map[string]any{
				"controllerName": "kueue.x-k8s.io/multikueue",
				"parameters":     map[string]any{"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": checkName(group)},
			}))
	}
	return all, nil
}
