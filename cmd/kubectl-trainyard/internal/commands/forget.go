// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/forget"
	"github.com/trainyard/trainyard/internal/hub"
)

const forgetExamples = `  # A worker that was switched off for good
  kubectl trainyard forget gpu-east

  # The same, in a script that has made sure of it
  kubectl trainyard forget gpu-east --yes

  # Take it back
  kubectl annotate workercluster gpu-east trainyard.dev/forget-`

type forgetOptions struct {
	streams
	factory    *Factory
	yes, force bool
}

func newForget(f *Factory, s streams) *cobra.Command {
	o := forgetOptions{streams: s, factory: f}
	cmd := &cobra.Command{
		Use:   "forget WORKER",
		Short: "Give up a worker that will never return",
		Long: `Tell the hub that a worker will never return, or that nothing runs there any more. The hub places its live jobs again at once,
whatever their failover is, and deleted jobs no longer wait for it.

Jobs are started elsewhere even if they still run there: if the cluster is only cut off, they run twice. If the cluster returns, the hub
deletes its copies of these jobs first, and the worker is no longer forgotten. The WorkerCluster stays; while the cluster is away nothing
is placed there.

The command first says what will happen and to which jobs, and asks for the name of the WorkerCluster. It refuses a worker that
answers: drain that worker instead.

This needs the rights to get and patch WorkerClusters, and to list Dispatches in all namespaces and Tombstones.`,
		Example:           forgetExamples,
		ValidArgsFunction: completer{f}.worker,
		Args:              onlyWorker("forget"),
		RunE: namedWorker.arguments(func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), args[0])
		}),
	}
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&o.force, "force", false, "forget even a worker that is just being connected, or that answers "+
		"without the APIs of jobs: if jobs run there, they run twice")
	return cmd
}

func (o *forgetOptions) run(ctx context.Context, name string) error {
	h, err := o.factory.Hub()
	if err != nil {
		return err
	}
	worker, err := o.forgettable(ctx, h, name)
	if err != nil {
		return err
	}
	if forget.IsForgotten(worker) {
		return o.say(worker, "already forgotten")
	}
	consequences := forget.Consequences{Worker: worker, Now: time.Now()}
	if consequences.Dispatches, err = h.Dispatches(ctx, ""); err != nil {
		return err
	}
	if consequences.Tombstones, err = h.Tombstones(ctx); err != nil {
		return err
	}
	if err := forget.Describe(o.ErrOut, consequences); err != nil {
		return err
	}
	if !o.yes {
		if err := o.confirm(ctx, name); err != nil {
			return err
		}
		// In the meantime the worker may have returned, or lead to another cluster.
		asked := worker.Status.ClusterID
		if worker, err = o.forgettable(ctx, h, name); err != nil {
			return err
		}
		if worker.Status.ClusterID != asked {
			return fmt.Errorf("WorkerCluster %q leads to another cluster now; nothing was changed", name)
		}
	}
	if err := h.AnnotateWorker(ctx, name, v1alpha1.AnnotationForget, ptr.To(string(worker.Status.ClusterID))); err != nil {
		return err
	}
	return o.say(worker, "forgotten")
}

func (o *forgetOptions) forgettable(ctx context.Context, h *hub.Hub, name string) (*v1alpha1.WorkerCluster, error) {
	worker, err := h.Worker(ctx, name)
	if err != nil {
		return nil, err
	}
	if worker.Status.ClusterID == "" {
		return nil, fmt.Errorf("the hub has never been connected to worker %q, so there is nothing to forget", name)
	}
	switch refusal := forget.RefusalOf(worker); {
	case refusal.Final: // The hub would see the worker again at once, and move nothing.
		return nil, fmt.Errorf("worker %q is not forgotten: %s; move its jobs with %s drain %s",
			name, refusal.Why, displayName, name)
	case refusal.Why != "" && !o.force:
		return nil, fmt.Errorf("worker %q is not forgotten: %s; look again, or use --force and risk that its jobs run twice",
			name, refusal.Why)
	}
	return worker, nil
}

// confirm asks for the name. Ctrl-C does not end the read of the input, so confirm does not wait for it then.
func (o *forgetOptions) confirm(ctx context.Context, name string) error {
	if _, err := fmt.Fprintf(o.ErrOut, "\nType the name of the WorkerCluster to forget it: "); err != nil {
		return err
	}
	typed := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(o.In).ReadString('\n') // The end of the input is an empty answer.
		typed <- strings.TrimSpace(line)
	}()
	select {
	case answer := <-typed:
		switch answer {
		case name:
			return nil
		case "":
			return errors.New("no name was typed, and nothing was changed; use --yes in scripts")
		}
		return fmt.Errorf("%q is not %q; nothing was changed", answer, name)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
