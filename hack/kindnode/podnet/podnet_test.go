// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestCNIConfigHasThePodCIDR(t *testing.T) {
	text, err := cniConfig("10.244.3.0/24")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Plugins []struct {
			Type string
			IPAM struct {
				Ranges [][]struct{ Subnet string }
			}
		}
	}
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	if len(config.Plugins) != 2 || config.Plugins[0].Type != "ptp" || config.Plugins[1].Type != "portmap" {
		t.Fatalf("plugins %v, want ptp and portmap", config.Plugins)
	}
	if got := config.Plugins[0].IPAM.Ranges[0][0].Subnet; got != "10.244.3.0/24" {
		t.Errorf("subnet %q, want the pod CIDR", got)
	}
}

func TestRoute(t *testing.T) {
	addresses := func(all ...corev1.NodeAddress) corev1.NodeStatus { return corev1.NodeStatus{Addresses: all} }
	for name, test := range map[string]struct {
		reason string
		node   corev1.Node
		want   string // destination and gateway; empty: no route
	}{
		"by the internal IPv4 address": {
			reason: "the name is no address, and IPv6 is not supported",
			node: corev1.Node{Spec: corev1.NodeSpec{PodCIDR: "10.244.1.0/24"}, Status: addresses(
				corev1.NodeAddress{Type: corev1.NodeHostName, Address: "a"},
				corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "fc00::2"},
				corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "172.18.0.3"},
			)},
			want: "10.244.1.0/24 172.18.0.3",
		},
		"no address yet": {
			reason: "the kubelet writes the address after the node",
			node:   corev1.Node{Spec: corev1.NodeSpec{PodCIDR: "10.244.1.0/24"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			r, err := route(&test.node)
			if err != nil {
				t.Fatal(err)
			}
			if r != nil {
				got = r.Dst.String() + " " + r.Gw.String()
			}
			if got != test.want {
				t.Errorf("route %q, want %q: %s", got, test.want, test.reason)
			}
		})
	}
	if _, err := route(&corev1.Node{Spec: corev1.NodeSpec{PodCIDR: "10.244.1.0"}}); err == nil {
		t.Error("a pod CIDR without a length has a route")
	}
}
