// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
)

// route returns the route to the pods of a node.
func route(node *corev1.Node) (*netlink.Route, error) {
	_, pods, err := net.ParseCIDR(node.Spec.PodCIDR)
	if err != nil {
		return nil, fmt.Errorf("parse pod CIDR: %w", err)
	}
	for _, address := range node.Status.Addresses {
		if ip := net.ParseIP(address.Address); address.Type == corev1.NodeInternalIP && ip.To4() != nil {
			return &netlink.Route{Dst: pods, Gw: ip}, nil
		}
	}
	return nil, nil //nolint:nilnil // The kubelet has not written the node's address yet: no route.
}

func replaceRoute(node *corev1.Node) error {
	r, err := route(node)
	if err != nil || r == nil {
		return err
	}
	if err := netlink.RouteReplace(r); err != nil {
		return fmt.Errorf("replace route to %s by %s: %w", r.Dst, r.Gw, err)
	}
	return nil
}

func deleteRoute(node *corev1.Node) {
	r, err := route(node)
	if err != nil || r == nil {
		return
	}
	if err := netlink.RouteDel(r); err != nil && !errors.Is(err, syscall.ESRCH) {
		slog.Warn("Delete route", "route", r, "error", err)
	}
}
