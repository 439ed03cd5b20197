// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workercluster_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
	"github.com/trainyard/trainyard/controllers/hub/workercluster"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
)

// The hub's API server accepts the status of a worker, whatever the worker reports.
func TestWhatAWorkerSaysIsTaken(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	node := func(change func(*capacity.NodeState)) capacity.Snapshot {
		node := workercluster.NodeOf("node", nil, 1<<40, 0)
		change(node)
		return capacity.Snapshot{Nodes: []*capacity.NodeState{node}}
	}
	connection := remote.Status{KubernetesVersion: "v1.36.3", Trainer: remote.Trainer{Version: "v1alpha1", Fields: []string{"suspend"}}}
	for name, test := range map[string]struct {
		connection func(*remote.Status)
		snapshot   capacity.Snapshot
		groups     int
	}{
		"Usual":             {snapshot: node(func(*capacity.NodeState) {}), groups: 1},
		"KubernetesVersion": {connection: func(s *remote.Status) { s.KubernetesVersion = "v1.36.3+" + strings.Repeat("x", 64) }},
		"TrainerVersion":    {connection: func(s *remote.Status) { s.Trainer.Version = long }},
		"FieldNames":        {connection: func(s *remote.Status) { s.Trainer.Fields = []string{"a", long} }},
		"ManyFields": {connection: func(s *remote.Status) {
			for i := range 1000 {
				s.Trainer.Fields = append(s.Trainer.Fields, fmt.Sprint("field", i))
			}
		}},
		"Product":     {snapshot: node(func(n *capacity.NodeState) { n.Labels["nvidia.com/gpu.product"] = long }), groups: 1},
		"LabelValue":  {snapshot: node(func(n *capacity.NodeState) { n.Labels["topology.kubernetes.io/zone"] = long }), groups: 1},
		"LabelKey":    {snapshot: node(func(n *capacity.NodeState) { n.Labels[long] = "a" }), groups: 1},
		"Resource":    {snapshot: node(func(n *capacity.NodeState) { n.Allocatable[corev1.ResourceName(long)] = 1 }), groups: 1},
		"GPUResource": {snapshot: node(func(n *capacity.NodeState) { n.Allocatable[corev1.ResourceName("a/gpu"+long)] = 1 }), groups: 1},
		"ManyResources": {snapshot: node(func(n *capacity.NodeState) {
			for i := range 10_000 {
				n.Allocatable[corev1.ResourceName(fmt.Sprint("example.com/resource-", i))] = 1
			}
		}), groups: 1},
		"Taint": {snapshot: node(func(n *capacity.NodeState) {
			n.Taints = []corev1.Taint{{Key: "a", Value: long, Effect: corev1.TaintEffectNoSchedule}}
		})},
		"Count": {snapshot: node(func(n *capacity.NodeState) { n.Count = math.MaxInt }), groups: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			worker := &v1alpha1.WorkerCluster{Spec: v1alpha1.WorkerClusterSpec{Connection: v1alpha1.Connection{KubeconfigPath: "/none"}}}
			worker.GenerateName = "says-"
			check.Must(t, s.Hub.Admin.Create(t.Context(), worker))
			t.Cleanup(func() { s.unregister(t, worker.Name) })
			says := connection
			if test.connection != nil {
				test.connection(&says)
			}
			workercluster.SetVersions(&worker.Status, says)
			worker.Status.NodeGroups, worker.Status.GPUs = workercluster.CapacityOf(&test.snapshot)
			if got := len(worker.Status.NodeGroups); got != test.groups {
				t.Errorf("%d groups of nodes are shown, want %d", got, test.groups)
			}
			check.Must(t, s.Hub.Admin.Status().Update(t.Context(), worker))
		})
	}
}
