// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/internal/process"
	"github.com/trainyard/trainyard/cmd/internal/webhookserver"
	"github.com/trainyard/trainyard/controllers/worker/capacityreport"
	"github.com/trainyard/trainyard/controllers/worker/trainjob"
	workerlease "github.com/trainyard/trainyard/executionlease/worker"
	workerwebhooks "github.com/trainyard/trainyard/webhooks/worker"
)

// run works until ctx ends. Then it returns nil.
func run(ctx context.Context, o options) error {
	log := o.SetUpLog()
	config, err := o.RestConfig("trainyard-worker-agent")
	if err != nil {
		return err
	}
	if err := o.AwaitAPIs(ctx, config, log, process.JobSetAPI, process.TrainerAPI); err != nil || ctx.Err() != nil {
		return err
	}
	scheme := apiruntime.NewScheme()
	if err := errors.Join(trainjob.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("register types: %w", err)
	}
	managerOptions := ctrl.Options{Scheme: scheme, Cache: trainjob.CacheOptions()}
	o.Apply(&managerOptions)
	server, certs, err := o.webhooks.New()
	if err != nil {
		return err
	}
	if certs != nil {
		defer certs.Remove()
	}
	managerOptions.WebhookServer = server
	mgr, err := ctrl.NewManager(config, managerOptions)
	if err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	trainJobs := trainjob.Options{
		MaxConcurrentReconciles: o.concurrency,
		ExtendedConditions:      o.extendedConditions,
		Health:                  &o.health,
	}
	if err := setUpFencing(ctx, mgr, o, &trainJobs); err != nil {
		return err
	}
	if err := traceStarts(ctx, mgr, &trainJobs); err != nil {
		return err
	}
	if err := trainjob.Add(ctx, mgr, trainJobs); err != nil {
		return err
	}
	if o.capacityReport {
		if err := capacityreport.Add(mgr, capacityreport.Options{Quota: o.kueueQuota}); err != nil {
			return err
		}
	}
	if server == nil {
		log.Info("Admission webhooks are not served; to serve them set --webhook-cert-dir or --webhook-service")
	} else if err := setUpWebhooks(ctx, mgr, server, certs); err != nil {
		return err
	}
	return process.Run(ctx, mgr)
}

// setUpFencing adds fencing to a manager, and its gate to the TrainJob controller.
func setUpFencing(ctx context.Context, mgr ctrl.Manager, o options, trainJobs *trainjob.Options) error {
	if !o.fencing {
		trainJobs.Gate = workerlease.Shut
		return nil
	}
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find a name for this process: %w", err)
	}
	fencingOptions := workerlease.Options{Identity: name + "_" + string(uuid.NewUUID())}
	if o.LeaderElect {
		fencingOptions.Election = &workerlease.Election{
			Namespace: o.LeaseNamespace, LeaseDuration: o.LeaseDuration, RenewDeadline: o.RenewDeadline, RetryPeriod: o.RetryPeriod,
		}
	}
	fencer, err := workerlease.Add(ctx, mgr, fencingOptions)
	if err != nil {
		return err
	}
	trainJobs.Gate, trainJobs.Rechecks = fencer.Gate, fencer.Rechecks()
	return nil
}

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
