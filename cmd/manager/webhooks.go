// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	trainercore "github.com/kubeflow/trainer/v2/pkg/runtime/core"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/trainyard/trainyard/cmd/internal/webhookserver"
	"github.com/trainyard/trainyard/controllers/hub/placement"
	hubwebhooks "github.com/trainyard/trainyard/webhooks/hub"
)

const (
	// webhookConfiguration is the name of the Mutating- and the ValidatingWebhookConfiguration in config/webhook-hub.
	webhookConfiguration = "trainyard-manager"
	// serveAgainAfter is how long to wait after webhooks or gateway could not be served.
	serveAgainAfter = 10 * time.Second
	// Dry runs have a limit of their own: users must not be able to take requests from the controllers.
	dryRunQPS, dryRunBurst = 50, 100
)

var webhookWords = webhookserver.Words{
	Manifests: "config/webhook-hub", Process: "The manager",
	Readiness: "The manager dispatches, and is ready, whether they are served or not: the API server then accepts TrainJobs unchecked.",
}

// addWebhooks adds the webhooks of the hub, if they are to be served.
func (w *wiring) addWebhooks(ctx context.Context) error {
	if !w.options.webhooks.Enabled() {
		w.log.Info("Admission webhooks are not served; to serve them set --webhook-cert-dir or --webhook-service")
		return nil
	}
	config := w.options.UnwrappedConfig()
	dryRuns := rest.CopyConfig(config)
	dryRuns.QPS, dryRuns.Burst = dryRunQPS, dryRunBurst
	api, err := client.New(dryRuns, client.Options{Scheme: w.mgr.GetScheme()})
	if err != nil {
		return fmt.Errorf("make client for dry runs: %w", err)
	}
	hub, err := hubwebhooks.New(ctx, hubwebhooks.Options{
		ManagedBy: w.options.managedBy, Protected: w.options.protected,
		Reader: w.mgr.GetClient(), Live: w.mgr.GetAPIReader(), DryRuns: client.NewDryRunClient(api), Hub: placement.NewReviewer(w.placer, w.dependents.consented),
		NewRuntimes: newRuntimes,
	})
	if err != nil {
		return err
	}
	return w.mgr.Add(&webhookRunner{
		options: &w.options.webhooks, config: config, scheme: w.mgr.GetScheme(), webhooks: hub, log: w.log.WithName("webhooks"),
	})
}

// newRuntimes makes the runtime framework of the trainer module.
func newRuntimes(ctx context.Context, c client.Client, i client.FieldIndexer) (map[string]trainerruntime.Runtime, error) {
	return trainercore.New(ctx, c, i, nil)
}

// webhookRunner serves the webhooks with a controller manager of their own. An error of the main controller manager
// ends the process, and certificates that cannot be made must not stop the dispatching. This config is not wrapped: all
// replicas serve, and write certificates and dry runs, although only the leader may write anything else.
type webhookRunner struct {
	options  *webhookserver.Options
	config   *rest.Config
	scheme   *runtime.Scheme
	webhooks *hubwebhooks.Webhooks
	log      logr.Logger
}

// NeedLeaderElection returns false, because all replicas serve webhooks.
func (r *webhookRunner) NeedLeaderElection() bool { return false }

// Start serves until ctx ends. After an error it tries again.
func (r *webhookRunner) Start(ctx context.Context) error {
	serveAgain(ctx, r.serve, func(err error) {
		r.log.Error(err, "Admission webhooks are not served now: TrainJobs are accepted unchecked")
	})
	return nil
}

// serveAgain calls serve until ctx ends, with a pause after each error.
func serveAgain(ctx context.Context, serve func(context.Context) error, failed func(error)) {
	for ctx.Err() == nil {
		if err := serve(ctx); ctx.Err() == nil {
			failed(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(serveAgainAfter):
		}
	}
}

// newServing returns a controller manager for a server with its certificates. An error of the main controller manager
// ends the process. The controllers of the certificates are made again after an error.
func newServing(config *rest.Config, options ctrl.Options) (ctrl.Manager, error) {
	options.Metrics, options.HealthProbeBindAddress = metricsserver.Options{BindAddress: "0"}, "0"
	options.Controller = controllerconfig.Controller{SkipNameValidation: ptr.To(true), UsePriorityQueue: ptr.To(false)}
	return ctrl.NewManager(config, options)
}

func (r *webhookRunner) serve(ctx context.Context) error {
	server, certs, err := r.options.New()
	if err != nil {
		return err
	}
	if certs != nil {
		defer certs.Remove()
	}
	mgr, err := newServing(r.config, ctrl.Options{Scheme: r.scheme, WebhookServer: server})
	if err != nil {
		return fmt.Errorf("set up webhooks: %w", err)
	}
	if certs != nil {
		if err := certs.AddTo(ctx, mgr); err != nil {
			return err
		}
	}
	r.webhooks.Register(mgr.GetWebhookServer())
	return mgr.Start(ctx)
}
