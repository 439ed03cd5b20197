// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/trainyard/trainyard/cmd/internal/webhookserver"
	"github.com/trainyard/trainyard/controllers/worker/trainjob"
	workerwebhooks "github.com/trainyard/trainyard/webhooks/worker"
)

// webhookConfiguration is the name of the Mutating- and the ValidatingWebhookConfiguration in config/webhook.
const webhookConfiguration = "trainyard-worker-agent"

var webhookWords = webhookserver.Words{
	Manifests: "config/webhook", Process: "The agent",
	Readiness: "With them, the agent is ready only when they are served.",
}

// setUpWebhooks makes the manager serve the webhooks on server. The agent is ready when they are served: what fails
// closed must not wait for a replica that does not answer.
func setUpWebhooks(ctx context.Context, mgr ctrl.Manager, server webhook.Server, certs *webhookserver.Certificates) error {
	if certs != nil {
		if err := certs.AddTo(ctx, mgr); err != nil {
			return err
		}
		if err := mgr.AddReadyzCheck("webhook-authority", certs.CheckInjected); err != nil {
			return fmt.Errorf("add readiness check of webhooks: %w", err)
		}
	}
	if err := mgr.AddReadyzCheck("webhooks", server.StartedChecker()); err != nil {
		return fmt.Errorf("add readiness check of webhooks: %w", err)
	}
	return workerwebhooks.Add(ctx, mgr, workerwebhooks.Options{NewRuntimes: trainjob.NewRuntimes})
}
