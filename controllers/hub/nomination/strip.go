// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package nomination

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/trainjobs"
)

// Strip is the transform of the hub's cache of Workloads. Of a finished Workload it keeps the name, and of a Workload
// on a worker also what it needs there. A Workload that waits for a nomination keeps its status and what Kueue owns of
// it: both go into the patch that nominates, so that nobody has to read the Workload for it.
func Strip(in any) (any, error) {
	object, ok := in.(*unstructured.Unstructured)
	if !ok {
		return in, nil
	}
	w, err := parse(object)
	if err != nil {
		return in, nil //nolint:nilerr // The reconciler reports it.
	}
	spec, status := kueues.Fields(object, "spec"), kueues.Fields(object, "status")
	conditions := trainjobs.PickItems(status["conditions"], "type", "status", "reason")
	if w.Is(kueues.Finished) || len(w.Status.AdmissionChecks) == 0 {
		return kueues.Slim(object, nil, map[string]any{"conditions": conditions}), nil
	}
	needs := trainjobs.PickFields(spec, "priority")
	needs["podSets"] = stripPodSets(spec["podSets"])
	if w.awaitsNomination() {
		kept := kueues.Slim(object, needs, status, "labels", "ownerReferences")
		kept.SetManagedFields(entriesOfKueue(object.GetManagedFields()))
		return kept, nil
	}
	given := trainjobs.PickFields(status, "clusterName", "nominatedClusterNames")
	given["conditions"] = conditions
	given["admissionChecks"] = trainjobs.PickItems(status["admissionChecks"], "name", "state")
	return kueues.Slim(object, needs, given, "labels", "ownerReferences"), nil
}

// awaitsNomination is true for a Workload that may have to be nominated, as far as the Workload itself says.
func (w *workload) awaitsNomination() bool {
	return w.Status.ClusterName == "" && w.Is(kueues.QuotaReserved) && !w.Is(kueues.Evicted)
}

// stripPodSets keeps what places pods: counts, requests and constraints.
func stripPodSets(list any) []any {
	podSets, _ := list.([]any)
	var kept []any
	for _, item := range podSets {
		podSet, _ := item.(map[string]any)
		pod, _, _ := unstructured.NestedMap(podSet, "template", "spec")
		slim := trainjobs.PickFields(pod, "nodeSelector", "tolerations", "overhead", "terminationGracePeriodSeconds", "resources", "hostNetwork")
		for _, containers := range []string{"containers", "initContainers"} {
			if pod[containers] != nil {
				slim[containers] = trainjobs.PickItems(pod[containers], "name", "resources", "restartPolicy", "ports")
			}
		}
		if affinity, _, _ := unstructured.NestedMap(pod, "affinity", "nodeAffinity"); affinity != nil {
			slim["affinity"] = map[string]any{"nodeAffinity": affinity}
		}
		one := maps.Clone(trainjobs.PickFields(podSet, "name", "count"))
		one["template"] = map[string]any{"spec": slim}
		kept = append(kept, one)
	}
	return kept
}
