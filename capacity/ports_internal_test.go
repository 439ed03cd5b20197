// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/hostports"
	testcheck "github.com/trainyard/trainyard/test/check"
)

func withPort(pod *corev1.Pod, port int32) *corev1.Pod {
	pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: port, ContainerPort: port, Protocol: corev1.ProtocolTCP, Name: "x"}}
	return pod
}

// stripped is a pod as the cache holds it.
func stripped(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	out, err := StripPod(pod)
	must(t, err)
	return out.(*corev1.Pod)
}

// TestHostPorts: the ports of bound pods are used, also in a report, and free when the pod is over.
func TestHostPorts(t *testing.T) {
	tally := NewTally()
	tally.setNode(newNode("a", list("cpu", "8"), corev1.ConditionTrue))
	tally.setPod(stripped(t, withPort(newPod("p", "a", corev1.PodRunning, nil, "gang", "node"), 80)))
	const name = "~hostport/80/TCP"
	snapshot := tally.Snapshot()
	differ(t, Resources{"pods": 1, name: hostports.Capacity(name)}, snapshot.Nodes[0].Used, "used")
	report, err := NewReport(snapshot, ReportLimit)
	must(t, err)
	read, err := snapshotOf(report)
	must(t, err)
	differ(t, snapshot.Nodes[0].Used, read.Nodes[0].Used, "used in the report")
	differ(t, snapshot.Nodes[0].Gangs, read.Nodes[0].Gangs, "gangs in the report")
	tally.setPod(stripped(t, withPort(newPod("p", "a", corev1.PodSucceeded, nil, "gang", "node"), 80)))
	differ(t, Resources{}, tally.Snapshot().Nodes[0].Used, "used after the end")
	testcheck.Equal(t, 0, len(tally.locked.ports), "names that are counted after the end")
}

// TestManyHostPorts: pods cannot bring any number of names. Nodes where the other ports are taken say so.
func TestManyHostPorts(t *testing.T) {
	tally := NewTally()
	for _, node := range []string{"a", "b"} {
		tally.setNode(newNode(node, list("cpu", "8"), corev1.ConditionTrue))
		for i := range int32(hostports.Max) {
			tally.setPod(withPort(newPod(fmt.Sprint(node, i), node, corev1.PodRunning, nil), 1000+i))
		}
	}
	tally.setPod(withPort(newPod("more", "b", corev1.PodRunning, nil, "gang", "node"), 80))
	snapshot := tally.Snapshot()
	used := []int64{snapshot.Nodes[0].Used[hostports.Others], snapshot.Nodes[1].Used[hostports.Others]}
	differ(t, []int64{0, hostports.Capacity(hostports.Others)}, used, "other ports on each node")
	gang := snapshot.Nodes[1].Gangs[types.NamespacedName{Namespace: "ns", Name: "gang"}]
	testcheck.Equal(t, hostports.Capacity(hostports.Others), gang[hostports.Others], "other ports of the gang")
	report, err := NewReport(snapshot, ReportLimit)
	must(t, err)
	must(t, check(report))
	report.Resources = append(report.Resources, "~hostport/81/TCP")
	if err := check(report); err == nil || !strings.Contains(err.Error(), "66 host ports, and 65 are allowed") {
		t.Errorf("a report with one more port: %v", err)
	}
	tally.deletePod(types.NamespacedName{Namespace: "ns", Name: "more"})
	testcheck.Equal(t, int64(0), tally.Snapshot().Nodes[1].Used[hostports.Others], "other ports after the end of the pod")
}
