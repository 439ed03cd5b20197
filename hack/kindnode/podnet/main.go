// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

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
