// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/forget"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/registration"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/hub"
)

const leaveExamples = `  # Move the jobs of a worker elsewhere, revoke the hub's rights there, and remove it from the hub
  kubectl trainyard leave gpu-east --context gpu-east --drain

  # The same, without changing anything
  kubectl trainyard leave gpu-east --context gpu-east --drain --dry-run=server

  # A worker that was switched off for good
  kubectl trainyard leave gpu-east --force`

type leaveOptions struct {
	clusterPair
	drain, force bool
}

func newLeave(f *Factory, s streams) *cobra.Command {
	o := leaveOptions{clusterPair: clusterPair{streams: s, factory: f}}
	cmd := &cobra.Command{
		Use:   "leave NAME [--context WORKER]",
		Short: "Take a worker out of the hub",
		Long: `Take a worker out of the hub, with your rights on both clusters.

In this command --context names the worker, and --hub-context the hub: the current context if it is not given.

The worker is cordoned. When it has no jobs of the hub any more, the account of the hub with its tokens and rights and the worker-agent
are deleted on the worker, and then the Secret and the WorkerCluster on the hub. Finished copies on the worker are deleted, and their logs
with them. What is left on the worker is printed, with the commands that remove it. Without --context nothing is deleted on the worker.

While the worker has jobs, nothing is done without --drain, which moves them elsewhere, or --force, which gives them up: the hub places
them again at once, as by "forget". --force is refused while the worker is Ready.

The command can be repeated, also after it was interrupted. The exit code is 0 when the worker is out, 2 if jobs stay there that fit
nowhere else, and 1 for everything else.

--namespace is the namespace of Trainyard's manager on the hub, trainyard-system if it is not given.`,
		Example: leaveExamples,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("name one worker: " + displayName + " leave NAME [--context WORKER]")
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: namedWorker.arguments(func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if o.drain && o.force {
				return errors.New("--drain and --force exclude each other: a worker that can be drained is not given up")
			}
			return o.run(cmd.Context(), args[0])
		}),
	}
	o.addFlags(cmd, 10*time.Minute, "how long to wait for each step, the drain included")
	cmd.Flags().BoolVar(&o.drain, "drain", false, "move the jobs of the worker to other workers first")
	cmd.Flags().BoolVar(&o.force, "force", false, "give the worker up: the hub places its jobs again at once; if they still run there, they run twice")
	return cmd
}

func (o *leaveOptions) run(ctx context.Context, name string) error {
	cluster, err := o.hub()
	if err != nil {
		return err
	}
	var worker *registration.Cluster
	if o.namesWorker() {
		if worker, err = o.worker(); err != nil {
			return err
		}
	}
	say := func(line string) error { return o.printLines([]string{line}) }
	leave, err := registration.NewLeave(ctx, cluster, worker, registration.Options{Name: name, Namespace: o.namespace()}, say)
	if err != nil {
		return err
	}
	h, err := hub.New(cluster.Config, o.hubContext)
	if err != nil {
		return err
	}
	if leave.Worker() == nil {
		if err := o.notThere(ctx, h, name); err != nil {
			return err
		}
	} else if err := o.empty(ctx, h, leave); err != nil {
		return err
	}
	return o.finish(ctx, leave, name)
}

// notThere says that nothing is registered under the name. An earlier leave may have ended, or the name is wrong.
func (o *leaveOptions) notThere(ctx context.Context, h *hub.Hub, name string) error {
	workers, err := h.Workers(ctx)
	if err != nil {
		return err
	}
	return o.remark("note: there is no WorkerCluster %q%s", name, hub.DidYouMean(name, hub.WorkerNames(workers)))
}

// empty makes sure that the worker has no jobs.
func (o *leaveOptions) empty(ctx context.Context, h *hub.Hub, leave *registration.Leave) error {
	worker := leave.Worker()
	jobs, err := jobsOn(ctx, h, worker.Name)
	switch {
	case err != nil:
		return err
	case o.force:
		return o.giveUp(ctx, h, leave, jobs)
	case len(jobs) > 0 && !o.drain:
		return o.refuse(worker.Name, jobs)
	}
	spec := map[string]any{"unschedulable": true}
	done := "cordoned"
	if o.drain {
		spec, done = map[string]any{"drain": true}, "draining"
	}
	if err := leave.Cordon(ctx, spec, done); err != nil {
		return err
	}
	if o.isDryRun() {
		return o.list(jobs, "would be moved")
	}
	if o.drain {
		follower := drainOptions{workerEditor: workerEditor{streams: o.streams, factory: o.factory}, timeout: o.timeout}
		if err := follower.follow(ctx, h, worker); err != nil {
			return drainFailed(err, worker.Name)
		}
	}
	if err := o.limited(ctx, leave.AwaitCordon); err != nil {
		return err
	}
	// Until the manager saw the cordon, it could place a job.
	if jobs, err = jobsOn(ctx, h, worker.Name); err != nil {
		return err
	}
	if len(jobs) > 0 {
		return o.refuse(worker.Name, jobs)
	}
	if err := o.limited(ctx, leave.ClearCopies); err != nil {
		return err
	}
	return o.limited(ctx, leave.AwaitBrought)
}

// drainFailed says how to go on after a drain that has not ended. Jobs that stay have been explained already.
func drainFailed(err error, worker string) error {
	if errors.As(err, new(exitCode)) {
		return err
	}
	return fmt.Errorf("%w\nThe same command again goes on, and \"%s uncordon %s\" ends the drain. If the worker will never answer again, "+
		"use --force in the place of --drain", err, displayName, worker)
}

// limited gives a step its time, and shows what it waits for.
func (o *leaveOptions) limited(ctx context.Context, step func(ctx context.Context, waits func(string) error) error) error {
	ctx, cancel := registration.Limited(ctx, o.timeout)
	defer cancel()
	return cmp.Or(step(ctx, o.status.Show), o.status.Done())
}

func (o *leaveOptions) list(jobs []string, what string) error {
	lines := make([]string, len(jobs))
	for i, job := range jobs {
		lines[i] = "trainjob " + job + " " + what
	}
	return o.printLines(lines)
}

func (o *leaveOptions) refuse(worker string, jobs []string) error {
	if err := o.list(jobs, "is on the worker"); err != nil {
		return err
	}
	return fmt.Errorf("worker %q has %s: move them elsewhere with --drain; or give a worker up that will never return with --force",
		worker, counted(len(jobs), "job", "jobs"))
}

// giveUp tells the hub that the worker will never return, and waits until its jobs are no longer there.
func (o *leaveOptions) giveUp(ctx context.Context, h *hub.Hub, leave *registration.Leave, jobs []string) error {
	worker := leave.Worker()
	if refusal := forget.RefusalOf(worker); refusal.Final && len(jobs) > 0 {
		return fmt.Errorf("worker %q is not given up: %s; move its jobs with --drain", worker.Name, refusal.Why)
	}
	if err := leave.Cordon(ctx, map[string]any{"unschedulable": true}, "cordoned"); err != nil {
		return err
	}
	if worker.Status.ClusterID == "" || len(jobs) == 0 {
		return nil // Nothing has ever been there, or nothing is there now.
	}
	if err := leave.Forget(ctx); err != nil {
		return err
	}
	if o.isDryRun() {
		return o.list(jobs, "would be placed again")
	}
	return o.limited(ctx, func(ctx context.Context, waits func(string) error) error { return o.awaitGivenUp(ctx, h, leave, waits) })
}

// awaitGivenUp waits until the hub has no jobs on a forgotten worker. A worker that answers again keeps its jobs.
func (o *leaveOptions) awaitGivenUp(ctx context.Context, h *hub.Hub, leave *registration.Leave, waits func(string) error) error {
	name := leave.Worker().Name
	for {
		latest, err := leave.Latest(ctx)
		if err != nil {
			return err
		}
		jobs, err := jobsOn(ctx, h, name)
		switch {
		case err != nil || len(jobs) == 0:
			return err
		case latest != nil && forget.RefusalOf(latest).Final:
			return fmt.Errorf("worker %q answers again, so it keeps %s: move them with --drain, or let it stay with \"%s uncordon %s\"",
				name, counted(len(jobs), "job", "jobs"), displayName, name)
		}
		if err := waits(fmt.Sprintf("waiting until the hub has taken %s from worker %q", counted(len(jobs), "job", "jobs"), name)); err != nil {
			return err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return fmt.Errorf("the hub still has %s on worker %q: see whether its manager runs; the same command again goes on",
				counted(len(jobs), "job", "jobs"), name)
		}
	}
}

// finish deletes what join has made on both clusters.
func (o *leaveOptions) finish(ctx context.Context, leave *registration.Leave, name string) error {
	left, err := leave.Revoke(ctx)
	if err != nil {
		return fmt.Errorf("%w\nRun the same command again to go on", err)
	}
	onHub, err := leave.Unregister(ctx, name)
	if err != nil {
		return fmt.Errorf("%w\nRun the same command again to go on", err)
	}
	if leave.Worker() != nil && !o.isDryRun() {
		if err := o.printLines([]string{fmt.Sprintf("workercluster/%s has left", name)}); err != nil {
			return err
		}
	}
	if err := o.leftovers("hub", onHub); err != nil {
		return err
	}
	if !o.namesWorker() && !o.isDryRun() && leave.Worker() != nil {
		return o.remark("note: nothing was deleted on the worker: its account %s is valid until \"%s leave %s --context WORKER\" deletes it",
			"trainyard-hub", displayName, name)
	}
	return o.leftovers("worker", left)
}

func (o *leaveOptions) leftovers(side string, left []string) error {
	if len(left) == 0 {
		return nil
	}
	if err := o.remark("left on the %s:", side); err != nil {
		return err
	}
	for _, line := range left {
		if err := o.remark("  %s", line); err != nil {
			return err
		}
	}
	return nil
}

// jobsOn returns the jobs that are placed on a worker and have not finished, sorted.
func jobsOn(ctx context.Context, h *hub.Hub, worker string) ([]string, error) {
	dispatches, err := h.Dispatches(ctx, "")
	if err != nil {
		return nil, err
	}
	var jobs []string
	for i := range dispatches {
		if d := &dispatches[i]; d.Spec.Cluster == v1alpha1.ClusterName(worker) && record.AttemptOf(d) != record.Finished {
			jobs = append(jobs, d.Namespace+"/"+d.Spec.TrainJob.Name)
		}
	}
	slices.Sort(jobs)
	return jobs, nil
}
