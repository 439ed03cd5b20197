// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/hub"
)

func newCordon(f *Factory, s streams) *cobra.Command {
	editor := workerEditor{streams: s, factory: f}
	return &cobra.Command{
		Use:   "cordon WORKER...",
		Short: "Mark workers as unschedulable",
		Long: `Mark workers as unschedulable: they get no new jobs, and keep those that they have.

This needs the rights to get and patch WorkerClusters.`,
		Example: `  # No new jobs for two workers
  kubectl trainyard cordon gpu-east gpu-west`,
		ValidArgsFunction: completer{f}.workers,
		Args:              someWorkers("cordon"),
		RunE: namedWorker.arguments(func(cmd *cobra.Command, args []string) error {
			return editor.each(cmd.Context(), args, editor.cordon)
		}),
	}
}

func newUncordon(f *Factory, s streams) *cobra.Command {
	editor := workerEditor{streams: s, factory: f}
	return &cobra.Command{
		Use:   "uncordon WORKER...",
		Short: "Mark workers as schedulable, and end drains",
		Long: `Mark workers as schedulable: they get jobs again. The drain of a worker that is being drained ends: jobs that have not been told
to leave stay, and those that have left come back only if they are placed there again.

This needs the rights to get and patch WorkerClusters.`,
		Example: `  # A worker is back from maintenance
  kubectl trainyard uncordon gpu-east`,
		ValidArgsFunction: completer{f}.workers,
		Args:              someWorkers("uncordon"),
		RunE: namedWorker.arguments(func(cmd *cobra.Command, args []string) error {
			return editor.each(cmd.Context(), args, editor.uncordon)
		}),
	}
}

func someWorkers(command string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return errors.New("name a worker: " + displayName + " " + command + " WORKER...")
		}
		return nil
	}
}

type workerEditor struct {
	streams
	factory *Factory
}

// each calls do for each worker. After an error it continues with the next worker.
func (e workerEditor) each(
	ctx context.Context, names []string, do func(context.Context, *hub.Hub, *v1alpha1.WorkerCluster) error,
) error {
	h, err := e.factory.Hub()
	if err != nil {
		return err
	}
	var all *multierror.Error
	for _, name := range names {
		worker, err := h.Worker(ctx, name)
		if err == nil {
			err = do(ctx, h, worker)
		}
		all = multierror.Append(all, err)
	}
	if all.ErrorOrNil() != nil && len(all.Errors) == 1 {
		return all.Errors[0]
	}
	return all.ErrorOrNil()
}

func (e workerEditor) cordon(ctx context.Context, h *hub.Hub, worker *v1alpha1.WorkerCluster) error {
	if worker.Spec.Unschedulable {
		return e.say(worker, "already cordoned")
	}
	return e.edit(ctx, h, worker, map[string]any{"unschedulable": true}, "cordoned")
}

func (e workerEditor) uncordon(ctx context.Context, h *hub.Hub, worker *v1alpha1.WorkerCluster) error {
	switch {
	case worker.Spec.Drain:
		return e.edit(ctx, h, worker, map[string]any{"unschedulable": nil, "drain": nil}, "uncordoned, its drain has ended")
	case worker.Spec.Unschedulable:
		return e.edit(ctx, h, worker, map[string]any{"unschedulable": nil}, "uncordoned")
	}
	return e.say(worker, "already uncordoned")
}

// edit merges some fields into a worker's spec, and prints done.
func (e workerEditor) edit(ctx context.Context, h *hub.Hub, worker *v1alpha1.WorkerCluster, spec map[string]any, done string) error {
	if err := h.PatchWorker(ctx, worker.Name, map[string]any{"spec": spec}); err != nil {
		return err
	}
	return e.say(worker, done)
}
