// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/views/trace"
)

const traceExamples = `  # What took how long, from the submission of a job to its end
  kubectl trainyard trace llama-finetune`

type traceOptions struct{ jobOptions }

func newTrace(f *Factory, s streams) *cobra.Command {
	o := traceOptions{jobOptions{streams: s, factory: f}}
	cmd := &cobra.Command{
		Use:   "trace TRAINJOB",
		Short: "Draw what took how long in the life of a TrainJob",
		Long: `Draw what took how long in the life of a TrainJob, as bars: each attempt with its waiting, its start and its run, and how it ended. These are
the spans that the manager exports by OTLP, with the same ID of the trace: the UID of the TrainJob.

Of the present attempt there are also the scheduling of the pods, the pulling of images with the start of containers, and until all pods
were ready. They are read from the pods, which are on a worker, through the gateway of the hub. Without it, the command says why they are
missing.

This needs the rights to get TrainJobs and Dispatches, and for the pods the right to list pods.`,
		Example:           traceExamples,
		ValidArgsFunction: completer{f}.job,
		Args:              onlyArg("trace"),
		RunE:              namedJob.arguments(func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) }),
	}
	addManagerNamespace(cmd.Flags(), &o.managerNamespace)
	return cmd
}

func (o *traceOptions) run(ctx context.Context, name string) error {
	_, observation, err := o.factory.observe(ctx, name)
	if err != nil {
		return err
	}
	tree := trace.Of(observation.Job, observation.Dispatch)
	missing := ""
	if of := tree.Present(); of != nil && (observation.Dispatch == nil || of.Name == trace.Attempt) {
		pods, why, err := o.pods(ctx, name)
		if err != nil {
			why = err.Error()
		}
		missing = why
		tree.Spans = append(tree.Spans, trace.PodSpans(of, tree, pods)...)
	}
	if err := o.printLines(tree.Bars(time.Now())); err != nil || missing == "" {
		return err
	}
	return o.remark("note: when pods got nodes, pulled images and became ready is not shown: %s", missing)
}

// pods returns the pods of the present attempt, or says why there are none.
func (o *traceOptions) pods(ctx context.Context, name string) (pods []*corev1.Pod, why string, err error) {
	clients, err := o.clients(name)
	if err != nil {
		return nil, "", err
	}
	place, there, err := find(ctx, clients, o.Options)
	if err != nil {
		return nil, "", err
	}
	if why := place.WhyNone(); why != "" {
		return nil, why, nil
	}
	list, err := there.CoreV1().Pods(o.Job.Namespace).List(ctx, metav1.ListOptions{LabelSelector: place.Selector})
	if err != nil {
		return nil, "", fmt.Errorf("list pods of TrainJob %q: %w", name, err)
	}
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	return pods, "", nil
}
