// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/kubeflow/trainer/v2/pkg/controller"
	"github.com/kubeflow/trainer/v2/pkg/webhooks"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlpkg "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// manager runs the controllers of a release.
type manager struct {
	certs, host string
	port        int
}

func (m *manager) run(ctx context.Context) error {
	ctrl.SetLogger(zap.New())
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:        scheme,
		Client:        client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Metrics:       metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{Host: m.host, Port: m.port, CertDir: m.certs}),
	})
	if err != nil {
		return err
	}
	runtimes, err := newRuntimes(ctx, mgr.GetClient(), mgr.GetFieldIndexer())
	if err != nil {
		return fmt.Errorf("load training runtimes: %w", err)
	}
	if name, err := controller.SetupControllers(mgr, runtimes, ctrlpkg.Options{}); err != nil {
		return fmt.Errorf("set up the controller of %s: %w", name, err)
	}
	if m.certs != "" {
		if name, err := webhooks.Setup(mgr, runtimes); err != nil {
			return fmt.Errorf("set up the webhook of %s: %w", name, err)
		}
	}
	return mgr.Start(ctx)
}
