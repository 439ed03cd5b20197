// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostports counts the host ports of pods as amounts, so that a fit treats them like other resources. The rules
// are those of the scheduler: two pods with the same port and protocol conflict if their addresses are equal, or if one
// of them takes the port on all addresses. Addresses are compared as texts.
//
// How to use it: Of returns the ports of a pod, and Amounts returns the names and amounts under which they count. A node
// has the Capacity of each name, although no node lists it. Names of other resources never begin as these names do.
//
// A pod that takes a port on all addresses takes the whole Capacity of the port. A pod with an address takes one unit of
// the port, and the address of the port. So pods with different addresses fit on one node, and the others do not.
package hostports

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

const (
	// Max is how many ports count for one pod, and how many names count on one worker.
	Max = 64
	// Others is the name under which all ports beyond Max count together. A node where they are taken has no port free
	// whose name does not count.
	Others corev1.ResourceName = prefix + "others"

	prefix = "~hostport/" // No resource of Kubernetes can begin with it.
	whole  = 1000         // The Capacity of a port. More pods than this number never run on one node.
)

// Of returns the ports that a pod takes on its node, sorted, each one once. Sidecars take ports, other init containers do
// not. With hostNetwork, the API server makes each port of a container a host port.
func Of(pod *corev1.PodSpec) []v1alpha1.HostPort {
	var ports []v1alpha1.HostPort
	for i := range pod.InitContainers {
		if policy := pod.InitContainers[i].RestartPolicy; policy != nil && *policy == corev1.ContainerRestartPolicyAlways {
			ports = appendPorts(ports, pod.InitContainers[i].Ports, pod.HostNetwork)
		}
	}
	for i := range pod.Containers {
		ports = appendPorts(ports, pod.Containers[i].Ports, pod.HostNetwork)
	}
	slices.SortFunc(ports, func(a, b v1alpha1.HostPort) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Address, b.Address))
	})
	return slices.Compact(ports)
}

func appendPorts(ports []v1alpha1.HostPort, given []corev1.ContainerPort, hostNetwork bool) []v1alpha1.HostPort {
	for i := range given {
		port := v1alpha1.HostPort{Port: given[i].HostPort, Protocol: given[i].Protocol, Address: given[i].HostIP}
		if port.Port == 0 && hostNetwork {
			port.Port = given[i].ContainerPort
		}
		if port.Port <= 0 {
			continue
		}
		if port.Protocol == "" {
			port.Protocol = corev1.ProtocolTCP
		}
		if port.Address == "0.0.0.0" {
			port.Address = "" // For the scheduler, "::" is one address, and not all of them.
		}
		ports = append(ports, port)
	}
	return ports
}

// Amounts returns what the ports of one pod take, by name. Ports beyond Max take all of Others. It is nil without ports.
func Amounts(ports []v1alpha1.HostPort) map[corev1.ResourceName]int64 {
	if len(ports) == 0 {
		return nil
	}
	amounts := make(map[corev1.ResourceName]int64, len(ports))
	if len(ports) > Max {
		ports, amounts[Others] = ports[:Max], whole
	}
	for _, port := range ports {
		name := corev1.ResourceName(prefix + strconv.Itoa(int(port.Port)) + "/" + string(port.Protocol))
		if port.Address == "" {
			amounts[name] = whole
			continue
		}
		amounts[name+"/"+corev1.ResourceName(port.Address)] = 1
		amounts[name] = min(amounts[name]+1, whole)
	}
	return amounts
}

// Is says whether a name is that of a host port.
func Is(name corev1.ResourceName) bool { return strings.HasPrefix(string(name), prefix) }

// Capacity returns how much a node without pods has of a host port.
func Capacity(name corev1.ResourceName) int64 {
	if _, _, address := split(name); address != "" {
		return 1
	}
	return whole
}

// Words returns the name of a host port for people, such as "host port 29500/TCP".
func Words(name corev1.ResourceName) string {
	if name == Others {
		return "other host ports"
	}
	port, protocol, address := split(name)
	if address != "" {
		return "host port " + port + "/" + protocol + " of address " + address
	}
	return "host port " + port + "/" + protocol
}

func split(name corev1.ResourceName) (port, protocol, address string) {
	port, rest, _ := strings.Cut(strings.TrimPrefix(string(name), prefix), "/")
	protocol, address, _ = strings.Cut(rest, "/")
	return port, protocol, address
}
