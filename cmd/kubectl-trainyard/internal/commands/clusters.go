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
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/printing"
	"github.com/trainyard/trainyard/internal/hub"
	"github.com/trainyard/trainyard/views/fleet"
)

const clustersExamples = `  # The capacity of the workers, and what is free
  kubectl trainyard clusters

  # Everything about two workers
  kubectl trainyard clusters east west -o wide

  # The workers as a file, for simulate --workers
  kubectl trainyard clusters -o yaml > workers.yaml`

type clustersOptions struct {
	streams
	factory *Factory
	output  *printing.Flags
}

func newClusters(f *Factory, s streams) *cobra.Command {
	o := clustersOptions{streams: s, factory: f, output: printing.NewFlags()}
	cmd := &cobra.Command{
		Use:        "clusters [NAME...]",
		Aliases:    []string{"workers"},
		SuggestFor: []string{"list", "get", "nodes", "status"},
		Short:      "Print the workers, and what they have free",
		Long: `Print the workers of the hub, with a row for each product of GPUs or other accelerators that they have, and
for each kind of shares of them, such as MIG slices.

LARGEST-GANG is the largest gang of whole nodes that has room: 4x8 are 4 nodes with 8 GPUs each, all of them free. Jobs that share
nodes with others can find more. READY says why a worker gets no jobs, if it gets none. If the worker does not answer, the rest of
the line is from when it was last seen. AGENT is True if the worker's agent answers, so that jobs there can be stopped if the worker is
cut off. The numbers are those that the hub wrote last, and can be some seconds old. Notes on standard error say what an admin should
look at.

This needs the right to list WorkerClusters. -o json and the other formats print the WorkerClusters as they are.`,
		Example:           clustersExamples,
		ValidArgsFunction: completer{f}.workers,
		RunE: namedWorker.arguments(func(cmd *cobra.Command, args []string) error {
			if err := o.output.Check(); err != nil {
				return err
			}
			return o.run(cmd.Context(), args)
		}),
	}
	addOutput(cmd, o.output)
	return cmd
}

func (o *clustersOptions) run(ctx context.Context, names []string) error {
	h, err := o.factory.Hub()
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
	if !o.output.ForPeople() {
		return o.output.PrintObjects(o.Out, workerObjects(clusters))
	}
	if len(clusters) == 0 {
		return o.remark("No workers are registered.")
	}
	if err := o.output.PrintTable(o.Out, fleet.Table(clusters, time.Now())); err != nil {
		return err
	}
	return o.notes(fleet.Notes(clusters))
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
