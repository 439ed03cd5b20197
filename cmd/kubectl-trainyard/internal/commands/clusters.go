// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/fleet"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/hub"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/output"
)

const clustersExamples = `  # What the workers have, and what is free
  kubectl trainyard clusters

  # All that there is to say of two of them
  kubectl trainyard clusters east west -o wide

  # The workers as a file, for simulate --workers
  kubectl trainyard clusters -o yaml > workers.yaml`

func newClusters(f *Factory) *cobra.Command {
	flags := output.NewFlags()
	cmd := &cobra.Command{
		Use:     "clusters [NAME...]",
		Aliases: []string{"workers"},
		Short:   "Print the workers, and what they have free",
		Long: `Print the workers of the hub, with a line for each GPU product that they have.

LARGEST-GANG is the largest gang of whole nodes that would find room: 4x8 are 4 nodes with 8 GPUs each, all of them free. Jobs that share
nodes with others can find more. READY is why a worker gets no jobs, if it gets none; where it does not answer, the rest is of when it
was last seen. AGENT is True if the worker's agent answers, so that jobs there can be stopped if the worker is cut off. The numbers are
those that the hub has last written down, which can be some seconds ago. Notes on standard error say what an admin should look at.

Needed is the right to list WorkerClusters. With -o json and the like the WorkerClusters are printed as they are.`,
		Example:           clustersExamples,
		ValidArgsFunction: f.completeClusters,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.Check(); err != nil {
				return err
			}
			return f.clusters(cmd.Context(), args, flags)
		},
	}
	f.addOutput(cmd, flags)
	return cmd
}

func (f *Factory) clusters(ctx context.Context, names []string, flags *output.Flags) error {
	h, err := f.Hub()
	if err != nil {
		return err
	}
	clusters, err := h.Workers(ctx)
	if err != nil {
		return err
	}
	if clusters, err = named(clusters, names); err != nil {
		return err
	}
	if !flags.ForPeople() {
		return flags.PrintObjects(f.Streams.Out, workerObjects(clusters))
	}
	if len(clusters) == 0 {
		return f.remark("No workers are registered.")
	}
	if err := flags.PrintTable(f.Streams.Out, fleet.Table(clusters, time.Now())); err != nil {
		return err
	}
	for _, note := range fleet.Notes(clusters) {
		if err := f.remark("note: %s", note); err != nil {
			return err
		}
	}
	return nil
}

// named returns the workers with these names, in this order, or all.
func named(clusters []v1alpha1.WorkerCluster, names []string) ([]v1alpha1.WorkerCluster, error) {
	if len(names) == 0 {
		return clusters, nil
	}
	var found []v1alpha1.WorkerCluster
	for _, name := range names {
		at := slices.IndexFunc(clusters, func(c v1alpha1.WorkerCluster) bool { return c.Name == name })
		if at < 0 {
			return nil, fmt.Errorf("there is no WorkerCluster %q%s", name, hub.DidYouMean(name, hub.WorkerNames(clusters)))
		}
		found = append(found, clusters[at])
	}
	return found, nil
}

func workerObjects(workers []v1alpha1.WorkerCluster) []runtime.Object {
	objects := make([]runtime.Object, len(workers))
	for i := range workers {
		workers[i].SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WorkerCluster"))
		objects[i] = &workers[i]
	}
	return objects
}

// completeClusters completes names of workers that are not in args yet.
func (f *Factory) completeClusters(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	return completed(cmd, args, begun, func(ctx context.Context, args []string) []string {
		h, err := f.Hub()
		if err != nil {
			return nil
		}
		clusters, err := h.Workers(ctx)
		if err != nil {
			return nil
		}
		return slices.DeleteFunc(hub.WorkerNames(clusters), func(name string) bool { return slices.Contains(args, name) })
	})
}

// completeCluster completes the argument of a command that takes one worker.
func (f *Factory) completeCluster(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return f.completeClusters(cmd, args, begun)
}

// addOutput adds the flags that say how to print.
func (f *Factory) addOutput(cmd *cobra.Command, flags *output.Flags) {
	flags.AddTo(cmd)
	f.completeFlag(cmd, "output", func(context.Context, []string) []string { return flags.Formats() })
}

// remark prints to standard error what is not part of the answer.
func (f *Factory) remark(format string, args ...any) error {
	_, err := fmt.Fprintf(f.Streams.ErrOut, format+"\n", args...)
	return err
}
