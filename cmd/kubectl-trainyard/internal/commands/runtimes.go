// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/printing"
	"github.com/trainyard/trainyard/views/fleet"
)

const runtimesExamples = `  # The runtimes that are not the same on a worker as on the hub
  kubectl trainyard runtimes

  # In which fields the runtime torch-distributed differs
  kubectl trainyard runtimes torch-distributed --diff`

type runtimesOptions struct {
	streams
	factory *Factory
	output  *printing.Flags
	diff    bool
}

func newRuntimes(f *Factory, s streams) *cobra.Command {
	o := runtimesOptions{streams: s, factory: f, output: printing.NewFlags()}
	cmd := &cobra.Command{
		Use:   "runtimes [NAME]",
		Short: "Print the runtimes of workers that are not the hub's",
		Long: `Print the runtimes of workers that are not what the hub's runtimes of the same kind, namespace and name would be there, with a row for
each worker.

STATE is Differs if somebody has written another spec on the worker, Unsupported if the worker refuses the hub's spec, because it does
not know a field, say, and Unknown if the worker does not let the hub compare. What the API server and the webhooks of a worker make of
the hub's spec is no difference. A runtime that only one side has is not printed, nor one that Trainyard brought to the worker and will
replace.

With --diff the fields follow, the first 8 of each runtime. The hub has found them: no worker is asked. Jobs with another runtime than
the hub's can be kept off a worker by spec.runtime of their DispatchPolicy.

This needs the right to list WorkerClusters. -o json and the other formats print the WorkerClusters that have such runtimes.`,
		Example:           runtimesExamples,
		ValidArgsFunction: completer{f}.runtime,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return errors.New("name one runtime: " + displayName + " runtimes NAME")
			}
			return nil
		},
		RunE: namedRuntime.arguments(func(cmd *cobra.Command, args []string) error {
			if err := o.output.Check(); err != nil {
				return err
			}
			return o.run(cmd.Context(), args)
		}),
	}
	cmd.Flags().BoolVar(&o.diff, "diff", o.diff, "Print the fields that differ, too.")
	addOutput(cmd, o.output)
	return cmd
}

func (o *runtimesOptions) run(ctx context.Context, names []string) error {
	h, err := o.factory.Hub()
	if err != nil {
		return err
	}
	clusters, err := h.Workers(ctx)
	if err != nil {
		return err
	}
	name := ""
	if len(names) > 0 {
		name = names[0]
	}
	all := fleet.Runtimes(clusters, name)
	if !o.output.ForPeople() {
		return o.output.PrintObjects(o.Out, workerObjects(slices.DeleteFunc(clusters, func(c v1alpha1.WorkerCluster) bool {
			return len(fleet.Runtimes([]v1alpha1.WorkerCluster{c}, name)) == 0
		})))
	}
	switch {
	case len(all) == 0 && name != "":
		return o.remark(fmt.Sprintf("No worker is known to have another runtime %q than the hub.", name))
	case len(all) == 0:
		return o.remark("No worker is known to have another runtime than the hub.")
	}
	if err := o.output.PrintTable(o.Out, fleet.RuntimeTable(all, time.Now())); err != nil || !o.diff {
		return err
	}
	_, err = io.WriteString(o.Out, printers.EscapeTerminal(fleet.Differences(all)))
	return err
}
