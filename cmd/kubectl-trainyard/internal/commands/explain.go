// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/explanation"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/hub"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/output"
	"github.com/trainyard/trainyard/dispatch"
)

const explainExamples = `  # Where a job is and why, or why it waits
  kubectl trainyard explain llama-finetune

  # The same, with the state of each worker
  kubectl trainyard explain llama-finetune -o wide

  # What each of the workers would say to a job like it now
  kubectl get trainjob llama-finetune -o yaml | kubectl trainyard simulate -f -

  # What is on record, for programs
  kubectl trainyard explain llama-finetune -o jsonpath='{.spec.cluster}'`

func newExplain(f *Factory) *cobra.Command {
	flags := output.NewFlags()
	cmd := &cobra.Command{
		Use:   "explain TRAINJOB",
		Short: "Say where a TrainJob runs and why, or why it waits",
		Long: `Say of a TrainJob on which worker it is and why it is there; or, of one that waits, why each of the workers does not take it, what would
make it fit, and how many jobs come before it.

Needed are the rights to get TrainJobs and Dispatches. To those who may list Dispatches and TrainJobs in all namespaces the place in line
is told, and to those who may list DispatchPolicies and get Namespaces the policy. With -o json and the like the Dispatch is printed.`,
		Example:           explainExamples,
		ValidArgsFunction: f.completeJob,
		Args:              onlyArg("explain"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.Check(); err != nil {
				return err
			}
			return f.explain(cmd.Context(), args[0], flags)
		},
	}
	f.addOutput(cmd, flags)
	return cmd
}

func (f *Factory) explain(ctx context.Context, name string, flags *output.Flags) error {
	namespace, err := f.Namespace()
	if err != nil {
		return err
	}
	h, err := f.Hub()
	if err != nil {
		return err
	}
	key := types.NamespacedName{Namespace: namespace, Name: name}
	facts := explanation.Facts{Now: time.Now()}
	if facts.Job, err = h.Job(ctx, key); err != nil {
		return err
	}
	if facts.Dispatch, err = h.Dispatch(ctx, key); err != nil {
		return err
	}
	if !flags.ForPeople() {
		if facts.Dispatch == nil {
			return fmt.Errorf("TrainJob %q has no Dispatch that could be printed; without --output it is said why", name)
		}
		facts.Dispatch.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Dispatch"))
		return flags.PrintObjects(f.Streams.Out, []runtime.Object{facts.Dispatch})
	}
	completeFacts(ctx, h, &facts)
	return explanation.Describe(f.Streams.Out, facts, flags.Wide())
}

// completeFacts reads what is good to know, as far as the user may.
func completeFacts(ctx context.Context, h *hub.Hub, facts *explanation.Facts) {
	if facts.State() == explanation.Waiting {
		if line, err := readLine(ctx, h, ""); err == nil {
			facts.Place, facts.Length = line.Find(facts.Job.GetUID())
		}
	}
	if state := facts.State(); state == explanation.Unmanaged || state == explanation.Ended {
		return
	}
	if clusters, err := h.Workers(ctx); err == nil {
		facts.Clusters = clusters
	}
	if policies, err := h.Policies(ctx); err == nil {
		labels, _ := h.NamespaceLabels(ctx, facts.Job.GetNamespace()) // Not everybody may. Most policies do not ask for them.
		facts.Policy = policyName(policies, dispatch.Job{Labels: facts.Job.GetLabels(), NamespaceLabels: labels})
	}
}
