// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/copies"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/printing"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/hub"
)

// decisionTimeout is how long a command waits for a decision. A worker that answers needs a second.
const decisionTimeout = time.Minute

// reasonNotCarriedOut is the reason of the Event on the WorkerCluster that says why a decision is not carried out.
const reasonNotCarriedOut = "DecisionNotCarriedOut"

const aboutUnknownCopies = `

A hub that was restored from a backup finds on its workers copies of which it has no record. They may be training, so they are left
alone until somebody decides about them: "adopt" makes one the copy of the hub TrainJob of its name; "release" makes it a TrainJob of
its worker; "release --delete" deletes it.

Without NAMESPACE/NAME all unknown copies of the worker are printed, and without arguments those of all workers.

`

const adoptExamples = `  # The copies that the hub has no record of
  kubectl trainyard adopt

  # The job of the hub goes on as the copy that was found
  kubectl trainyard adopt gpu-east research/llama-finetune`

const releaseExamples = `  # Let a copy go on as a job of its worker
  kubectl trainyard release gpu-east research/llama-finetune

  # Delete it
  kubectl trainyard release gpu-east research/llama-finetune --delete`

type decisionOptions struct {
	streams
	factory  *Factory
	output   *printing.Flags
	decision v1alpha1.CopyDecision
	timeout  time.Duration
}

func newAdopt(f *Factory, s streams) *cobra.Command {
	o := decisionOptions{streams: s, factory: f, output: printing.NewFlags(), decision: v1alpha1.DecisionAdopt}
	cmd := &cobra.Command{
		Use:   "adopt [WORKER [NAMESPACE/NAME]]",
		Short: "Make a copy that the hub has no record of the copy of its job",
		Long: `Make a copy that the hub has no record of the copy of the hub TrainJob of its name, which has to exist and wait.` +
			aboutUnknownCopies + `This needs the rights to get, list, watch and patch WorkerClusters; to adopt, also to get the TrainJob and its Dispatch.`,
		Example: adoptExamples,
	}
	o.addTo(cmd)
	return cmd
}

func newRelease(f *Factory, s streams) *cobra.Command {
	o, remove := decisionOptions{streams: s, factory: f, output: printing.NewFlags(), decision: v1alpha1.DecisionRelease}, false
	cmd := &cobra.Command{
		Use:   "release [WORKER [NAMESPACE/NAME]]",
		Short: "Leave a copy that the hub has no record of to its worker, or delete it",
		Long: `Take the hub's labels off a copy that the hub has no record of, so that it is a TrainJob of its worker and runs on, or
delete it.` + aboutUnknownCopies + `This needs the rights to get, list, watch and patch WorkerClusters.`,
		Example: releaseExamples,
		PreRun: func(*cobra.Command, []string) {
			if remove {
				o.decision = v1alpha1.DecisionDelete
			}
		},
	}
	o.addTo(cmd)
	cmd.Flags().BoolVar(&remove, "delete", false, "delete the copy, with all that it runs")
	return cmd
}

func (o *decisionOptions) addTo(cmd *cobra.Command) {
	cmd.ValidArgsFunction = completer{o.factory}.copy
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 2 {
			return fmt.Errorf("name one copy: %s %s WORKER NAMESPACE/NAME", displayName, cmd.Name())
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.timeout < 0 {
			return fmt.Errorf("--timeout is %s: must not be negative; 0 waits without limit", o.timeout)
		}
		if len(args) == 2 {
			worker, err := namedWorker.name(args[0])
			if err != nil {
				return err
			}
			return o.decide(cmd.Context(), worker, args[1])
		}
		if err := o.output.Check(); err != nil {
			return err
		}
		return namedWorker.arguments(func(cmd *cobra.Command, names []string) error { return o.list(cmd.Context(), names) })(cmd, args)
	}
	cmd.Flags().DurationVar(&o.timeout, "timeout", decisionTimeout, "how long to wait until the copy is settled, zero means infinite")
	addOutput(cmd, o.output)
}

// list prints the unknown copies of some workers, or of all.
func (o *decisionOptions) list(ctx context.Context, names []string) error {
	h, err := o.factory.Hub()
	if err != nil {
		return err
	}
	workers, err := h.Workers(ctx)
	if err != nil {
		return err
	}
	if workers, err = named(workers, names); err != nil {
		return err
	}
	if !o.output.ForPeople() {
		return o.output.PrintObjects(o.Out, workerObjects(workers))
	}
	table := copies.Table(workers)
	if len(table.Rows) == 0 {
		return o.remark("There are no copies that the hub has no record of.")
	}
	return o.output.PrintTable(o.Out, table)
}

func (o *decisionOptions) decide(ctx context.Context, name, text string) error {
	key, err := o.copyKey(text)
	if err != nil {
		return err
	}
	h, err := o.factory.Hub()
	if err != nil {
		return err
	}
	worker, err := h.Worker(ctx, name)
	if err != nil {
		return err
	}
	copy, err := copies.Find(worker, key)
	if err != nil {
		return err
	}
	if o.decision == v1alpha1.DecisionAdopt {
		if err := adoptable(ctx, h, worker, key); err != nil {
			return err
		}
	}
	if err := h.AnnotateWorker(ctx, name, copies.Annotation(copy), ptr.To(string(o.decision))); err != nil {
		return err
	}
	if worker, err = awaitSettled(ctx, h, worker, copy, o.timeout); err != nil {
		return err
	}
	var dispatch *v1alpha1.Dispatch
	if o.decision == v1alpha1.DecisionAdopt {
		if dispatch, err = h.Dispatch(ctx, key); err != nil {
			return err
		}
	}
	outcome, err := copies.Outcome(worker, copy, o.decision, dispatch)
	if err == nil {
		_, err = fmt.Fprintln(o.Out, outcome)
	}
	// The decision has been carried out. The hub's manager does not remove its annotation.
	return errors.Join(err, h.AnnotateWorker(ctx, name, copies.Annotation(copy), nil))
}

// copyKey returns the key of "namespace/name", or of "name" in the namespace of the context. What has a dot before the
// slash is a type with its group, because no namespace has a dot.
func (o *decisionOptions) copyKey(text string) (types.NamespacedName, error) {
	namespace, name, found := strings.Cut(text, "/")
	if !found || strings.Contains(namespace, ".") {
		name, err := namedJob.name(text)
		if err != nil {
			return types.NamespacedName{}, err
		}
		namespace, err := o.factory.Namespace()
		return types.NamespacedName{Namespace: namespace, Name: name}, err
	}
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return types.NamespacedName{}, fmt.Errorf("%q is not NAMESPACE/NAME", text)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// adoptable returns why a job cannot adopt a copy on a worker. The manager checks it again.
func adoptable(ctx context.Context, h *hub.Hub, worker *v1alpha1.WorkerCluster, key types.NamespacedName) error {
	job, err := h.Job(ctx, key)
	if err != nil {
		return fmt.Errorf("%w; create it first, as the copy needs a job on the hub", err)
	}
	if end := trainjobs.Terminal(job); end != nil {
		return fmt.Errorf("TrainJob %q is %s, so it cannot adopt a copy", key, end.Type)
	}
	dispatch, err := h.Dispatch(ctx, key)
	if err != nil || dispatch == nil || record.AttemptOf(dispatch) == record.Ended {
		return err
	}
	switch dispatch.Spec.Cluster {
	case "", v1alpha1.ClusterName(worker.Name): // The hub may have an earlier attempt on this worker on record.
		return nil
	}
	return fmt.Errorf("TrainJob %q does not wait, it is on worker %q, so it cannot adopt a copy",
		key, dispatch.Spec.Cluster)
}

// awaitSettled waits until a copy is not unknown any more, and returns its worker with that state.
func awaitSettled(
	ctx context.Context, h *hub.Hub, worker *v1alpha1.WorkerCluster, copy v1alpha1.UnknownCopy, timeout time.Duration,
) (*v1alpha1.WorkerCluster, error) {
	limit, cancel := limited(ctx, timeout, errors.New("timed out"))
	defer cancel()
	limit, watcher := h.NewWatcher(limit)
	latest, err := watcher.Worker(limit, worker.Name)
	if err != nil {
		return nil, unsettled(ctx, h, err, worker, copy)
	}
	for {
		now := latest()
		switch {
		case now == nil:
			return nil, fmt.Errorf("WorkerCluster %q was deleted", worker.Name)
		case copies.IsSettled(now, copy):
			return now, nil
		}
		select {
		case <-watcher.Changed():
		case <-limit.Done():
			return nil, unsettled(ctx, h, context.Cause(limit), worker, copy)
		}
	}
}

// unsettled adds the hub's message, and what the user can do, to an error that ended the wait for a decision.
func unsettled(ctx context.Context, h *hub.Hub, err error, worker *v1alpha1.WorkerCluster, copy v1alpha1.UnknownCopy) error {
	if why, eventErr := h.LastEvent(ctx, worker.Name, reasonNotCarriedOut, string(copy.UID)); eventErr == nil && why != "" {
		err = fmt.Errorf("%w: %s", err, why) // Not every user may read Events.
	}
	return fmt.Errorf("%w\nThe decision is kept, and is carried out when that is possible. To take it back: kubectl "+
		"annotate workercluster %s %s-", err, worker.Name, copies.Annotation(copy))
}
