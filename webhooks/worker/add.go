// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	upstream "github.com/kubeflow/trainer/v2/pkg/webhooks"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/trainyard/trainyard/webhooks/validation"
)

// statusPath is the path for the status of TrainJobs. controller-runtime sets the other paths, which are upstream's.
const statusPath = "/validate-trainer-kubeflow-org-v1alpha1-trainjob-status"

// Options configures the webhooks.
type Options struct {
	// NewRuntimes is NewRuntimes of controllers/worker/trainjob. Required.
	NewRuntimes validation.NewRuntimes
	// Clock stamps runtime patches. nil: the real clock.
	Clock clock.PassiveClock
}

// Add registers all webhooks with the manager's webhook server. They answer after the manager has started.
func Add(ctx context.Context, mgr ctrl.Manager, opts Options) error {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	jobs, err := NewTrainJobValidator(ctx, validation.Options{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), NewRuntimes: opts.NewRuntimes,
	}, opts.Clock)
	if err != nil {
		return fmt.Errorf("set up webhooks: %w", err)
	}
	mgr.GetWebhookServer().Register(defaulterPath, &admission.Webhook{Handler: &trainJobDefaulter{clock: opts.Clock}})
	mgr.GetWebhookServer().Register(podsPath, &admission.Webhook{Handler: &podsAnswerer{validator: jobs}})
	err = errors.Join(
		ctrl.NewWebhookManagedBy(mgr, &trainer.TrainJob{}).WithValidator(jobs).Complete(),
		ctrl.NewWebhookManagedBy(mgr, &trainer.TrainJob{}).WithValidator(statusValidator{}).WithValidatorCustomPath(statusPath).
			Complete(),
		ctrl.NewWebhookManagedBy(mgr, &trainer.ClusterTrainingRuntime{}).
			WithValidator(clusterRuntimeValidator(&upstream.ClusterTrainingRuntimeValidator{})).Complete(),
		ctrl.NewWebhookManagedBy(mgr, &trainer.TrainingRuntime{}).
			WithValidator(runtimeValidator(&upstream.TrainingRuntimeValidator{})).Complete(),
	)
	if err != nil {
		return fmt.Errorf("register webhooks: %w", err)
	}
	return nil
}
