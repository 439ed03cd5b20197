// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package devices_test

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/capacity/devices"
	"github.com/trainyard/trainyard/test/check"
)

// TestReach checks on which of the nodes a and b, in zone z, devices count that are not published for one node.
func TestReach(t *testing.T) {
	everywhere := func(s *resourceapi.ResourceSlice) { s.Spec.NodeName, s.Spec.AllNodes = nil, ptr.To(true) }
	inZone := func(zone string) func(*resourceapi.ResourceSlice) {
		return func(s *resourceapi.ResourceSlice) {
			s.Spec.NodeName, s.Spec.NodeSelector = nil, &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}},
			}}}
		}
	}
	each := func(nodes ...string) func(*resourceapi.ResourceSlice) {
		return func(s *resourceapi.ResourceSlice) {
			s.Spec.NodeName, s.Spec.PerDeviceNodeSelection = nil, ptr.To(true)
			for i, name := range nodes {
				if s.Spec.Devices[i].NodeName = &name; name == "" {
					s.Spec.Devices[i].NodeName, s.Spec.Devices[i].AllNodes = nil, ptr.To(true)
				}
			}
		}
	}
	cases := map[string]struct {
		reason  string
		slices  []*resourceapi.ResourceSlice
		change  func(*devices.Counter)
		a, b    int64
		isLeft  bool
		claimed []string
		used    int64
	}{
		"AllNodes": {reason: "Both nodes reach them.", slices: []*resourceapi.ResourceSlice{slice("p", 2, everywhere)}, isLeft: true},
		"OneNode": {
			reason: "There is no other node.", slices: []*resourceapi.ResourceSlice{slice("p", 2, everywhere)},
			change: func(c *devices.Counter) { c.DeleteNode("b") }, a: 2,
		},
		"Selector": {reason: "Both nodes are selected.", slices: []*resourceapi.ResourceSlice{slice("p", 2, inZone("z"))}, isLeft: true},
		"Nowhere":  {reason: "No node is selected.", slices: []*resourceapi.ResourceSlice{slice("p", 2, inZone("y"))}, isLeft: true},
		"SelectorOfOne": {
			reason: "A node that moves leaves them to the other one.", slices: []*resourceapi.ResourceSlice{slice("p", 2, inZone("z"))},
			change: func(c *devices.Counter) { c.SetNode("b", map[string]string{"zone": "y"}) }, a: 2, claimed: []string{"d1"}, used: 1,
		},
		"SelectorMoves": {
			reason: "They are devices of the node that is selected now.", slices: []*resourceapi.ResourceSlice{slice("p", 2, inZone("y"))},
			change: func(c *devices.Counter) {
				c.SetNode("a", map[string]string{"zone": "y"})
				c.Count(t.Context())
				c.SetNode("a", nil)
				c.SetNode("b", map[string]string{"zone": "y"})
			}, b: 2,
		},
		"PerDevice": {
			reason: "Each device says its node.", slices: []*resourceapi.ResourceSlice{slice("p", 3, each("a", "b", "a"))},
			a: 2, b: 1, claimed: []string{"d0", "d1"}, used: 1,
		},
		"PerDeviceShared": {
			reason: "A device that both reach is no device of one.", slices: []*resourceapi.ResourceSlice{slice("p", 3, each("a", "b", ""))},
			a: 1, b: 1, isLeft: true,
		},
		"PoolOfBoth": {
			reason: "A slice of a node does not bring the others of its pool there.",
			slices: []*resourceapi.ResourceSlice{
				slice("a", 1, named("p0", 1, 2)), slice("a", 2, named("p1", 1, 2), everywhere, func(s *resourceapi.ResourceSlice) {
					s.Spec.Devices[0].Name, s.Spec.Devices[1].Name = "e0", "e1"
				}),
			}, a: 1, isLeft: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := devices.NewCounter()
			c.SetClass(class("gpu", true))
			c.SetNode("a", map[string]string{"zone": "z"})
			for _, s := range tc.slices {
				c.SetSlice(s)
			}
			c.SetNode("b", map[string]string{"zone": "z"})
			c.SetClaim(held("q", tc.slices[0].Spec.Pool.Name, tc.claimed...))
			latest := map[string]*devices.Node{}
			maps.Copy(latest, c.Count(t.Context()))
			if tc.change != nil {
				tc.change(c)
				maps.Copy(latest, c.Count(t.Context()))
			}
			total := func(node string) int64 {
				if latest[node] == nil {
					return 0
				}
				return latest[node].Total[gpu]
			}
			check.Equal(t, [2]int64{tc.a, tc.b}, [2]int64{total("a"), total("b")}, "%s", tc.reason)
			if latest["a"] != nil {
				check.Equal(t, tc.used, latest["a"].Used[gpu], "used on a")
			}
			check.Equal(t, tc.isLeft, len(c.Faults()) == 1, "faults: %v", c.Faults())
			for _, s := range tc.slices {
				c.DeleteSlice(s.Name)
			}
			for node, n := range c.Count(t.Context()) {
				check.Equal(t, true, n == nil, "node %s has no devices when no slice is left", node)
			}
			check.Equal(t, 0, len(c.Faults()), "faults when no slice is left")
		})
	}
}
