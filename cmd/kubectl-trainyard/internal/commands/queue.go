// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/printing"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/internal/hub"
	"github.com/trainyard/trainyard/views/jobs"
	"github.com/trainyard/trainyard/views/output"
)

const queueExamples = `  # Your jobs that wait
  kubectl trainyard queue

  # All that wait, with what keeps them
  kubectl trainyard queue -A -o wide`

type queueOptions struct {
	streams
	factory *Factory
	output  *printing.Flags
	all     bool
}

func newQueue(f *Factory, s streams) *cobra.Command {
	o := queueOptions{streams: s, factory: f, output: printing.NewFlags()}
	cmd := &cobra.Command{
		Use:        "queue",
		SuggestFor: []string{"list", "get", "trainjobs", "waiting"},
		Short:      "Print the TrainJobs that wait for a worker",
		Long: `Print the TrainJobs that wait for a worker, in the order in which they are looked at: by priority, then by age.

POSITION counts the jobs of all namespaces. Jobs without a position wait for something else than room, such as their runtime, and hold nobody
back. The first of the waiting list is not always the next that runs: unless its policy is StrictFIFO, a job that fits passes those that
do not.

This needs the rights to list Dispatches and TrainJobs; to count positions, in all namespaces. With -o wide the policies of the jobs
are printed too, which needs the rights to list DispatchPolicies and get Namespaces. -o json and the other formats print the Dispatches, in order.`,
		Example:           queueExamples,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.output.Check(); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "print the jobs of all namespaces")
	addOutput(cmd, o.output)
	return cmd
}

func (o *queueOptions) run(ctx context.Context) error {
	namespace, err := o.factory.Namespace()
	if err != nil {
		return err
	}
	h, err := o.factory.Hub()
	if err != nil {
		return err
	}
	list, err := o.readList(ctx, h, namespace)
	if err != nil {
		return err
	}
	shown := list.WaitingList
	if !o.all {
		shown = shown.Of(namespace)
	}
	if !o.output.ForPeople() {
		return o.output.PrintObjects(o.Out, dispatchObjects(shown))
	}
	switch {
	case len(shown) == 0 && o.all:
		return o.remark("No TrainJobs wait.")
	case len(shown) == 0:
		return o.remark("No TrainJobs wait in %s namespace.", namespace)
	}
	options := jobs.TableOptions{Namespaces: o.all, Positions: list.whole, Now: time.Now()}
	if o.output.Wide() {
		options.Policy = policyOf(ctx, h, list.meta)
	}
	return o.output.PrintTable(o.Out, shown.Table(options))
}

// readableList is the waiting list as far as the user may read it.
type readableList struct {
	jobs.WaitingList
	meta map[types.UID]hub.JobMeta
	// whole is true if it has the jobs of all namespaces.
	whole bool
}

// readList reads the waiting jobs of all namespaces. If the user may not read them, it reads one namespace and says so.
func (o *queueOptions) readList(ctx context.Context, h *hub.Hub, namespace string) (readableList, error) {
	list, err := readList(ctx, h, metav1.NamespaceAll)
	if !apierrors.IsForbidden(err) || o.all {
		list.whole = true
		return list, err
	}
	if list, err = readList(ctx, h, namespace); err != nil {
		return list, err
	}
	return list, o.remark("note: you may not list the Dispatches and TrainJobs of all namespaces, so positions are not " +
		"known")
}

func readList(ctx context.Context, h *hub.Hub, namespace string) (list readableList, err error) {
	dispatches, err := h.Dispatches(ctx, namespace)
	if err != nil {
		return list, err
	}
	if list.meta, err = h.Jobs(ctx, namespace); err != nil {
		return list, err
	}
	list.WaitingList = jobs.NewWaitingList(jobs.Each(dispatches), func(uid types.UID) (metav1.Time, bool) {
		job, known := list.meta[uid]
		return job.Created, known
	})
	return list, nil
}

func policyOf(ctx context.Context, h *hub.Hub, meta map[types.UID]hub.JobMeta) func(jobs.Place) string {
	policies, err := h.Policies(ctx)
	if err != nil {
		return func(jobs.Place) string { return output.Unknown }
	}
	namespaces := map[string]map[string]string{}
	return func(place jobs.Place) string {
		labels, known := namespaces[place.Namespace]
		if !known {
			labels, _ = h.NamespaceLabels(ctx, place.Namespace) // Not every user may read them. Few policies need them.
			namespaces[place.Namespace] = labels
		}
		return jobs.PolicyName(policies, dispatch.Job{Labels: meta[place.Spec.TrainJob.UID].Labels, NamespaceLabels: labels})
	}
}

func dispatchObjects(list jobs.WaitingList) []runtime.Object {
	objects := make([]runtime.Object, len(list))
	for i, place := range list {
		place.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Dispatch"))
		objects[i] = place.Dispatch
	}
	return objects
}
