// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/multikueue"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/printing"
)

// kueueNamespace is the namespace of Kueue in its manifests.
const kueueNamespace = "kueue-system"

const importExamples = `  # What would be made, which rights are missing on the workers, and the steps of the cut-over
  kubectl trainyard import multikueue --dry-run

  # Make it. The same again adds what has been added to MultiKueue since
  kubectl trainyard import multikueue

  # Only the objects
  kubectl trainyard import multikueue --dry-run=server -o name`

// importOptions are the options of import multikueue.
type importOptions struct {
	streams
	factory        *Factory
	output         *printing.Flags
	kueueNamespace string
	dryRun         string
}

func newImport(f *Factory, s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Take over the workers of another dispatcher",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newImportMultiKueue(f, s))
	return cmd
}

func newImportMultiKueue(f *Factory, s streams) *cobra.Command {
	o := importOptions{streams: s, factory: f, output: printing.NewFlags()}
	cmd := &cobra.Command{
		Use:   "multikueue",
		Short: "Take over the clusters of MultiKueue",
		Long: `Take over the clusters of the hub's MultiKueue. Nothing of Kueue is changed: MultiKueue goes on until you have followed the steps of
the cut-over, which are printed for each ClusterQueue, with the steps back.

For each MultiKueueCluster that a MultiKueueConfig of an AdmissionCheck names, this makes a Secret with its kubeconfig and a
WorkerCluster of its name, with the label import.trainyard.dev/CONFIG=true. For each such MultiKueueConfig it makes a DispatchPolicy of
its name: the jobs of its LocalQueues may run on these workers, and the first ones in the config are preferred. Then it asks each worker
whether the credentials have the rights of config/worker.

A kubeconfig that a WorkerCluster may not have is refused, with every fault. Credentials in a file of Kueue's pod and ClusterProfiles
are listed, with the command that registers the worker. Objects that this command has not made are left alone, and so are fields that
somebody has changed since. Nothing is ever deleted, so the command can be repeated.

--namespace is the namespace of Trainyard's manager, trainyard-system if it is not given.

Needed are the rights to list AdmissionChecks, MultiKueueConfigs, MultiKueueClusters, ClusterQueues, LocalQueues and Workloads of Kueue,
WorkerClusters and DispatchPolicies, to get Secrets in the namespace of Kueue, to get and patch Secrets in that of the manager, and to
create and patch WorkerClusters and DispatchPolicies.

The exit code is 0 if nothing is left to do before the cut-over, 2 if something is left, such as a cluster that was not imported or
rights that are missing, and 1 after an error.`,
		Example:           importExamples,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.output.Check(); err != nil {
				return err
			}
			if !slices.Contains(dryRuns(), o.dryRun) {
				return fmt.Errorf("invalid dry-run value (%s): must be %s", o.dryRun, strings.Join(dryRuns(), ", "))
			}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&o.kueueNamespace, "kueue-namespace", kueueNamespace, "the namespace of Kueue, with the Secrets of MultiKueue")
	cmd.Flags().StringVar(&o.dryRun, "dry-run", string(multikueue.NoDryRun), "must be none, client or server: client writes nothing, server has the "+
		"API server check what would be written; without a value it is client")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = string(multikueue.ClientDryRun)
	completeFlag(cmd, "dry-run", func(context.Context, []string) []string { return dryRuns() })
	completeFlag(cmd, "kueue-namespace", completer{f}.namespaces)
	addOutput(cmd, o.output)
	return cmd
}

func dryRuns() []string {
	return []string{string(multikueue.NoDryRun), string(multikueue.ClientDryRun), string(multikueue.ServerDryRun)}
}

func (o *importOptions) run(ctx context.Context) error {
	h, err := o.factory.Hub()
	if err != nil {
		return err
	}
	if err := o.status.Draw("reading what the hub has of MultiKueue"); err != nil {
		return err
	}
	seen, err := multikueue.Read(ctx, h, multikueue.Options{
		KueueNamespace: o.kueueNamespace, Namespace: cmp.Or(o.factory.namespaceFlag(), multikueue.DefaultNamespace),
		Context: o.factory.contextFlag(),
	})
	if err != nil {
		return err
	}
	plan, err := seen.Decide(time.Now())
	if err != nil {
		return err
	}
	report := multikueue.Import(ctx, h, seen, plan, multikueue.DryRun(o.dryRun), func(silent []string) {
		_ = o.status.Show("asking workers which rights the credentials have; these have not answered yet: " + strings.Join(silent, ", "))
	})
	if err := cmp.Or(o.status.Done(), o.print(report)); err != nil {
		return err
	}
	var all *multierror.Error
	for _, err := range report.Errors() {
		all = multierror.Append(all, h.Hint(err))
	}
	switch {
	case all != nil && len(all.Errors) == 1:
		return all.Errors[0]
	case all != nil:
		return all
	case !report.Complete():
		return exitCode(exitLeft)
	}
	return nil
}

func (o *importOptions) print(report *multikueue.Report) error {
	if err := o.notes(report.Plan.Notes); err != nil {
		return err
	}
	if !o.output.ForPeople() {
		return o.printObjects(report)
	}
	lines := report.Results()
	for _, text := range report.Left() {
		lines = append(lines, indented(text))
	}
	for i, rights := range report.Rights {
		if i == 0 {
			lines = append(lines, "", "Rights of the imported credentials:")
		}
		lines = append(lines, rights.Lines()...)
	}
	for _, queue := range report.Plan.Queues {
		lines = append(append(lines, ""), report.Plan.CutOver(queue)...)
	}
	return o.printLines(lines)
}

// printObjects prints the objects, and to standard error what is left to do.
func (o *importOptions) printObjects(report *multikueue.Report) error {
	for _, text := range report.Left() {
		if err := o.remark("%s", indented(text)); err != nil {
			return err
		}
	}
	for _, rights := range report.Rights {
		if rights.Err == nil && len(rights.Lack.Rights) == 0 {
			continue
		}
		if err := o.remark("%s", strings.Join(rights.Lines(), "\n")); err != nil {
			return err
		}
	}
	var objects []runtime.Object
	for _, object := range report.Applied() {
		objects = append(objects, object)
	}
	return o.output.PrintObjects(o.Out, objects)
}

// indented indents all lines of a text but the first.
func indented(text string) string { return strings.ReplaceAll(text, "\n", "\n  ") }
