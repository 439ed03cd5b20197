// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("End", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	self := os.Getenv("NODE_NAME")
	if self == "" {
		return errors.New("NODE_NAME is empty: want the name of the node that this program runs on")
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	factory := informers.NewSharedInformerFactory(client, 0)
	nodes := factory.Core().V1().Nodes().Informer()
	apply := func(node *corev1.Node) {
		if err := applyNode(self, node); err != nil {
			select {
			case failed <- fmt.Errorf("node %q: %w", node.Name, err):
			default:
			}
		}
	}
	if _, err := nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { apply(obj.(*corev1.Node)) },
		UpdateFunc: func(_, obj any) { apply(obj.(*corev1.Node)) },
		DeleteFunc: func(obj any) {
			if node, ok := obj.(*corev1.Node); ok && node.Name != self {
				deleteRoute(node)
			}
		},
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		// The kubelet starts this program again, which is the retry.
		return err
	}
}

// applyNode does what a node needs on the node self. A node without a pod CIDR needs nothing yet.
func applyNode(self string, node *corev1.Node) error {
	switch {
	case node.Spec.PodCIDR == "":
		return nil
	case node.Name == self:
		return writeCNI(node.Spec.PodCIDR)
	default:
		return replaceRoute(node)
	}
}

// cniFile is read by the container runtime of the node.
const cniFile = "/etc/cni/net.d/10-podnet.conflist"

// cniConfig returns the configuration of the CNI plugins for a node with the pod CIDR.
func cniConfig(podCIDR string) ([]byte, error) {
	type object = map[string]any
	return json.MarshalIndent(object{
		"cniVersion": "0.3.1",
		"name":       "podnet",
		"plugins": []object{
			{
				"type":   "ptp",
				"ipMasq": true,
				"ipam": object{
					"type":   "host-local",
					"ranges": [][]object{{{"subnet": podCIDR}}},
					"routes": []object{{"dst": "0.0.0.0/0"}},
				},
			},
			{"type": "portmap", "capabilities": object{"portMappings": true}},
		},
	}, "", "  ")
}

// writeCNI writes the configuration unless it is there. A rename makes sure that the runtime never reads half of it.
func writeCNI(podCIDR string) error {
	config, err := cniConfig(podCIDR)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(cniFile); err == nil && bytes.Equal(old, config) {
		return nil
	}
	part := filepath.Join(filepath.Dir(cniFile), ".podnet.part")
	if err := os.WriteFile(part, config, 0o600); err != nil {
		return err
	}
	slog.Info("Write CNI configuration", "podCIDR", podCIDR)
	return os.Rename(part, cniFile)
}

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
