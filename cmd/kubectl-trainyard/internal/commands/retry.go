// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/hub"
	"github.com/trainyard/trainyard/views/explanation"
)

type retryOptions struct {
	streams
	factory *Factory
}

func newRetry(f *Factory, s streams) *cobra.Command {
	o := retryOptions{streams: s, factory: f}
	return &cobra.Command{
		Use:   "retry TRAINJOB...",
		Short: "Ask workers again at once that have refused TrainJobs",
		Long: `Ask the workers again at once that have refused TrainJobs, for example after a Secret that a worker lacked was created there. Without
this, a worker is asked again after a minute, then two, up to half an hour, and when the job, its runtime, its policy or the worker
changes.

A TrainJob is retried at most once in ten seconds. A request that comes earlier is carried out when they are over. A TrainJob that has a
worker, is suspended, has ended, or does not wait for a worker for another reason is not changed, and the command says why.

This writes the annotation ` + v1alpha1.AnnotationRetry + ` of the TrainJobs. It needs the rights to get and patch TrainJobs and to get
Dispatches.`,
		Example: `  # The Secret is on the worker now
  kubectl trainyard retry llama-finetune

  # The same without the plugin
  kubectl annotate --overwrite trainjob llama-finetune ` + v1alpha1.AnnotationRetry + `="$(date)"`,
		ValidArgsFunction: completer{f}.manyJobs,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name a TrainJob, or several: " + displayName + " retry TRAINJOB")
			}
			return nil
		},
		RunE: namedJob.arguments(func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) }),
	}
}

// run retries each job. After an error it continues with the next job.
func (o *retryOptions) run(ctx context.Context, names []string) error {
	namespace, err := o.factory.Namespace()
	if err != nil {
		return err
	}
	h, err := o.factory.Hub()
	if err != nil {
		return err
	}
	var all *multierror.Error
	for _, name := range names {
		all = multierror.Append(all, o.retry(ctx, h, types.NamespacedName{Namespace: namespace, Name: name}))
	}
	if all.ErrorOrNil() != nil && len(all.Errors) == 1 {
		return all.Errors[0]
	}
	return all.ErrorOrNil()
}

func (o *retryOptions) retry(ctx context.Context, h *hub.Hub, key types.NamespacedName) error {
	observation := explanation.Observation{Now: time.Now()}
	var err error
	if observation.Job, err = h.Job(ctx, key); err != nil {
		return err
	}
	if observation.Dispatch, err = h.Dispatch(ctx, key); err != nil {
		return err
	}
	done, err := observation.Retry()
	if err != nil {
		return err
	}
	if err := h.AnnotateJob(ctx, observation.Job, v1alpha1.AnnotationRetry, observation.Now.UTC().Format(time.RFC3339Nano)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(o.Out, "trainjob.trainer.kubeflow.org/%s retried: %s\n", key.Name, done)
	return err
}
