// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"maps"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
	"github.com/trainyard/trainyard/dispatch"
)

// unmergedPods are the pods of those replicated jobs of which a Kubeflow Trainer before 2.3 makes other pods: the resources
// of their container "node" are spec.trainer.resourcesPerNode of the job, and nothing else. (Release 2.0 leaves the nodes of
// an MPI job as the runtime has them.) The keys are positions in pods.
func unmergedPods(job *trainer.TrainJob, info *trainerruntime.Info, pods []*corev1.PodSpec) map[int]*corev1.PodSpec {
	if job.Spec.Trainer == nil || job.Spec.Trainer.ResourcesPerNode == nil {
		return nil
	}
	resources := job.Spec.Trainer.ResourcesPerNode
	if resources.Limits == nil && resources.Requests == nil {
		return nil
	}
	unmerged := map[int]*corev1.PodSpec{}
	for i, podSet := range info.TemplateSpec.PodSets {
		if ptr.Deref(podSet.Ancestor, "") != constants.AncestorTrainer && (podSet.Name != constants.Node || !launcherIsNode(info)) {
			continue
		}
		pod := pods[i].DeepCopy()
		for j := range pod.Containers {
			if pod.Containers[j].Name == constants.Node {
				pod.Containers[j].Resources = *resources.DeepCopy()
			}
		}
		unmerged[i] = pod
	}
	return unmerged
}

// launcherIsNode: the launcher of an MPI job does the work of a node too. Then the nodes get the resources as well.
func launcherIsNode(info *trainerruntime.Info) bool {
	policy := info.RuntimePolicy.MLPolicySource
	return policy != nil && policy.MPI != nil && ptr.Deref(policy.MPI.RunLauncherAsNode, false)
}

// Unmerged returns the PodSets as a worker makes them that does not merge resources, or may not: then the larger amounts
// count. changed is false if they are the same.
func Unmerged(podSets []v1alpha1.PodSet, merging dispatch.Merging) (unmerged []v1alpha1.PodSet, changed bool) {
	if merging == dispatch.Merges || !slices.ContainsFunc(podSets, func(set v1alpha1.PodSet) bool { return set.UnmergedRequests != nil }) {
		return podSets, false
	}
	unmerged = slices.Clone(podSets)
	for i := range unmerged {
		set := &unmerged[i]
		if set.UnmergedRequests == nil {
			continue
		}
		set.MergedRequests, set.Requests = set.Requests, maps.Clone(set.UnmergedRequests)
		if merging == dispatch.MayReplace {
			for name, amount := range set.MergedRequests {
				if other := set.Requests[name]; other.Cmp(amount) < 0 {
					set.Requests[name] = amount
				}
			}
			continue
		}
		set.UnmergedRequests = nil
		maps.DeleteFunc(set.Requests, func(_ corev1.ResourceName, amount resource.Quantity) bool { return amount.IsZero() })
	}
	return unmerged, true
}

// unmergedRequests returns PodSet.UnmergedRequests for a pod, nil if they are the requests.
func unmergedRequests(requests corev1.ResourceList, unmerged *corev1.PodSpec) corev1.ResourceList {
	if unmerged == nil {
		return nil
	}
	list := capacity.PodRequests(&corev1.Pod{Spec: *unmerged})
	differs := false
	for name, amount := range requests {
		other, has := list[name]
		if !has {
			other = *resource.NewQuantity(0, resource.DecimalSI)
			list[name] = other
		}
		differs = differs || other.Cmp(amount) != 0
	}
	if !differs && len(list) == len(requests) {
		return nil
	}
	return list
}
