// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/drain"
	"github.com/trainyard/trainyard/internal/hub"
)

const drainExamples = `  # Move all jobs off a worker
  kubectl trainyard drain gpu-east

  # The same, until nothing more can move, but for an hour at most
  kubectl trainyard drain gpu-east --wait --timeout 1h

  # End the drain
  kubectl trainyard uncordon gpu-east`

type drainOptions struct {
	workerEditor
	wait    bool
	timeout time.Duration
}

func newDrain(f *Factory, s streams) *cobra.Command {
	o := drainOptions{workerEditor: workerEditor{streams: s, factory: f}}
	cmd := &cobra.Command{
		Use:   "drain WORKER",
		Short: "Cordon a worker, and move its jobs elsewhere",
		Long: `Cordon a worker, and move its jobs to other workers: as many at a time as their policies allow (maxConcurrentMoves). A job is
stopped there, and starts again elsewhere; what it has not saved is lost. A job that fits on no other worker stays, and moves when it fits.

For each job of the worker a line says what will happen to it. With --wait more lines say what happens, until no job is left that can
move. The drain goes on until "uncordon", with and without --wait.

The exit code is 0 when the drain has begun, or, with --wait, when no job is left on the worker; 2 if jobs stay there; 1 for everything else,
such as the timeout.

This needs the rights to get and patch WorkerClusters and to list Dispatches in all namespaces; with --wait also to list WorkerClusters
and to watch both.`,
		Example:           drainExamples,
		ValidArgsFunction: completer{f}.worker,
		Args:              onlyWorker("drain"),
		RunE: namedWorker.arguments(func(cmd *cobra.Command, args []string) error {
			switch {
			case o.timeout < 0:
				return fmt.Errorf("--timeout is %s: must not be negative; 0 waits without limit", o.timeout)
			case cmd.Flags().Changed("timeout") && !o.wait:
				return errors.New("--timeout is how long to wait: use it with --wait")
			}
			return o.run(cmd.Context(), args[0])
		}),
	}
	cmd.Flags().BoolVar(&o.wait, "wait", false, "follow the jobs until none is left that can move")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0, "how long to wait before giving up, zero means infinite")
	return cmd
}

func onlyWorker(command string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return errors.New("name one worker: " + displayName + " " + command + " WORKER")
		}
		return nil
	}
}

func (o *drainOptions) run(ctx context.Context, name string) error {
	h, err := o.factory.Hub()
	if err != nil {
		return err
	}
	worker, err := h.Worker(ctx, name)
	if err != nil {
		return err
	}
	if worker.Spec.Drain {
		err = o.say(worker, "already draining")
	} else {
		err = o.edit(ctx, h, worker, map[string]any{"drain": true}, "draining")
	}
	if err != nil {
		return err
	}
	if o.wait {
		return o.follow(ctx, h, worker)
	}
	return o.print(ctx, h, worker)
}

func (o *drainOptions) print(ctx context.Context, h *hub.Hub, worker *v1alpha1.WorkerCluster) error {
	all, err := h.Dispatches(ctx, "")
	if err != nil {
		return err
	}
	progress := drain.NewProgress(v1alpha1.ClusterName(worker.Name))
	if err := o.printLines(progress.Look(all)); err != nil {
		return err
	}
	if stay, leave := progress.Counts(); stay+leave > 0 {
		return o.remark("note: %s on worker %q; follow the drain with --wait, end it with %s uncordon %s",
			counted(stay+leave, "job is", "jobs are"), worker.Name, displayName, worker.Name)
	}
	return o.say(worker, "drained")
}

// follow prints what happens to the jobs until no job that can move is left.
func (o *drainOptions) follow(ctx context.Context, h *hub.Hub, worker *v1alpha1.WorkerCluster) error {
	ctx, cancel := limited(ctx, o.timeout, errors.New("timed out, and the drain goes on"))
	defer cancel()
	ctx, watcher := h.NewWatcher(ctx)
	latest, err := watcher.Worker(ctx, worker.Name)
	if err != nil {
		return err
	}
	dispatches, err := watcher.Dispatches(ctx)
	if err != nil {
		return err
	}
	follower := drainFollower{streams: o.streams, progress: drain.NewProgress(v1alpha1.ClusterName(worker.Name)), answers: true}
	for {
		if done, err := follower.look(latest(), worker.Name, dispatches()); done || err != nil {
			return cmp.Or(err, o.status.Done())
		}
		select {
		case <-watcher.Changed():
		case <-ctx.Done():
			stay, leave := follower.progress.Counts()
			return fmt.Errorf("%w: %s on worker %q", context.Cause(ctx), counted(stay+leave, "job is", "jobs are"), worker.Name)
		}
	}
}

// limited returns a context that ends with cause after timeout, or only by cancel if timeout is 0.
func limited(ctx context.Context, timeout time.Duration, cause error) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, timeout, cause)
}

type drainFollower struct {
	streams
	progress *drain.Progress
	// answers is false while the worker does not answer.
	answers bool
}

// look prints changes, and returns whether and how the drain has ended.
func (f *drainFollower) look(worker *v1alpha1.WorkerCluster, name string, dispatches []v1alpha1.Dispatch) (done bool, err error) {
	switch {
	case worker == nil:
		return true, fmt.Errorf("WorkerCluster %q was deleted", name)
	case !worker.Spec.Drain:
		return true, fmt.Errorf("the drain of worker %q was ended by somebody else", name)
	}
	if err := f.printLines(f.progress.Look(dispatches)); err != nil {
		return true, err
	}
	stay, leave := f.progress.Counts()
	switch {
	case leave > 0:
		if err := f.tellContact(worker); err != nil {
			return true, err
		}
		return false, f.status.Draw(fmt.Sprintf("draining worker %q: %s still to leave, %s", name, counted(leave, "job", "jobs"),
			counted(stay, "stays", "stay")))
	case stay > 0:
		if err := f.remark("note: %s on worker %q as things are; end the drain with %s uncordon %s",
			counted(stay, "job stays", "jobs stay"), name, displayName, name); err != nil {
			return true, err
		}
		return true, exitCode(exitStays)
	}
	return true, f.say(worker, "drained")
}

// tellContact reports that a worker that still has jobs to move does not answer, or answers again.
func (f *drainFollower) tellContact(worker *v1alpha1.WorkerCluster) error {
	ready := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterReady)
	answers := ready == nil || ready.Reason != v1alpha1.ReasonUnreachable
	if answers == f.answers {
		return nil
	}
	f.answers = answers
	if answers {
		return f.remark("note: worker %q answers again", worker.Name)
	}
	return f.remark("note: worker %q does not answer, and until it does its jobs cannot be stopped", worker.Name)
}

// counted returns a number with the singular or plural.
func counted(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
