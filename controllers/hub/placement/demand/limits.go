// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
	"strings"

	"github.com/kubeflow/trainer/v2/pkg/constants"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/trainyard/trainyard/api/hostports"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// The time under the lock of the waiting list is in proportion to a job's demand, and the job's Dispatch stores the
// demand. So a demand has limits, far above what jobs need. Kubernetes itself limits only the size of an object.
const (
	// MaxPods is how many pods a job may have: as many as Kubernetes supports in one cluster.
	MaxPods = 150_000
	// MaxPodSets is how many replicated jobs a job may have.
	MaxPodSets = 256
	// MaxResources is how many different resources the pods of a job may request.
	MaxResources = 128
	// MaxBytes is how large the PodSets of a job may be in JSON. Node selectors, affinity and tolerations take most of it.
	MaxBytes = 128 << 10
	// MaxSelectors is how many tolerations, terms of a node affinity and requirements of terms the PodSets of a job may have.
	// Empty ones take three bytes of JSON and many times as much memory.
	MaxSelectors = 4096
)

// tooLarge is for a job whose demand is beyond a limit. The message names the field, the value and the limit.
func tooLarge(format string, args ...any) error {
	return obstacle(v1alpha1.ReasonTooLarge, "the job is too large: "+format, args...)
}

// limitResources fails if all pods together request more than MaxResources different ones. It runs before amounts are
// added.
func limitResources(pods []*corev1.PodSpec) error {
	names := map[corev1.ResourceName]struct{}{}
	for _, pod := range pods {
		if pod.Resources != nil {
			for name := range pod.Resources.Requests {
				names[name] = struct{}{}
			}
		}
		for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
			for i := range containers {
				for name := range containers[i].Resources.Requests {
					names[name] = struct{}{}
				}
			}
		}
	}
	if len(names) > MaxResources {
		return tooLarge("the containers request %d different resources (spec.trainer.resourcesPerNode, or resources in the runtime), at most %d are counted",
			len(names), MaxResources)
	}
	return nil
}

// checkForm fails if a Dispatch cannot hold the PodSet. No cluster would accept its Job or its pods.
func checkForm(podSet *v1alpha1.PodSet) error {
	if faults := validation.IsDNS1123Label(podSet.Name); len(faults) > 0 {
		return fmt.Errorf("name of replicated job %q: %s", podSet.Name, strings.Join(faults, "; "))
	}
	if faults := validation.IsValidLabelValue(string(podSet.Role)); len(faults) > 0 {
		return fmt.Errorf("label %s of replicated job %q: %s", constants.LabelTrainJobAncestor, podSet.Name, strings.Join(faults, "; "))
	}
	for _, port := range podSet.HostPorts {
		if err := checkPort(port); err != nil {
			return fmt.Errorf("ports of replicated job %q: %w", podSet.Name, err)
		}
	}
	if podSet.NodeAffinity != nil && len(podSet.NodeAffinity.NodeSelectorTerms) == 0 {
		return fmt.Errorf("node affinity of replicated job %q: requiredDuringSchedulingIgnoredDuringExecution has no nodeSelectorTerms: give one, "+
			"or take the affinity out", podSet.Name)
	}
	return nil
}

func checkPort(port v1alpha1.HostPort) error {
	switch {
	case port.Port > math.MaxUint16:
		return fmt.Errorf("host port %d: give a number from 1 to %d", port.Port, math.MaxUint16)
	case port.Protocol != corev1.ProtocolTCP && port.Protocol != corev1.ProtocolUDP && port.Protocol != corev1.ProtocolSCTP:
		return fmt.Errorf("protocol %q of host port %d: give TCP, UDP or SCTP", port.Protocol, port.Port)
	case port.Address != "" && net.ParseIP(port.Address) == nil:
		return fmt.Errorf("hostIP %q of host port %d: give an IP address, or leave it out for all addresses", port.Address, port.Port)
	}
	return nil
}

// limitPodSets fails if a demand is too large to decide about and to record.
func limitPodSets(podSets []v1alpha1.PodSet) error {
	if len(podSets) > MaxPodSets {
		return tooLarge("the runtime has %d replicated jobs, at most %d are counted", len(podSets), MaxPodSets)
	}
	var pods int64
	ports, selectors := 0, 0
	for i := range podSets {
		selectors += selectorsOf(&podSets[i])
		pods += int64(podSets[i].Count)
		ports += len(podSets[i].HostPorts)
	}
	if ports > hostports.Max {
		return tooLarge("the replicated jobs take %d host ports, at most %d are counted", ports, hostports.Max)
	}
	if selectors > MaxSelectors {
		return tooLarge("its pods have %d tolerations, terms of node affinity and requirements of terms, at most %d are counted",
			selectors, MaxSelectors)
	}
	if pods > MaxPods {
		return tooLarge("spec.trainer.numNodes, replicas and parallelism make %s pods, at most %d are counted", atLeast(pods), MaxPods)
	}
	encoded, err := json.Marshal(podSets)
	if err != nil {
		return fmt.Errorf("encode the demand: %w", err)
	}
	if len(encoded) > MaxBytes {
		return tooLarge("node selectors, node affinity, tolerations and requests of its pods take %d bytes in JSON, at most %d are counted",
			len(encoded), MaxBytes)
	}
	return nil
}

func selectorsOf(set *v1alpha1.PodSet) int {
	count := len(set.Tolerations)
	if set.NodeAffinity != nil {
		for i := range set.NodeAffinity.NodeSelectorTerms {
			term := &set.NodeAffinity.NodeSelectorTerms[i]
			count += 1 + len(term.MatchExpressions) + len(term.MatchFields)
		}
	}
	return count
}

// atLeast formats a number of pods. math.MaxInt32 may stand for a larger number.
func atLeast(pods int64) string {
	if pods >= math.MaxInt32 {
		return fmt.Sprintf("%d or more", pods)
	}
	return fmt.Sprint(pods)
}

// times multiplies counts. It returns the largest number if the product is larger, and 0 if it is negative.
func times(a, b int32) int32 {
	return int32(min(int64(max(a, 0))*int64(max(b, 0)), math.MaxInt32))
}
