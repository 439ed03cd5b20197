// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/printing"
	"github.com/trainyard/trainyard/views/simulation"
	"github.com/trainyard/trainyard/views/simulation/manifests"
)

const simulateExamples = `  # Where a job would run
  kubectl trainyard simulate -f job.yaml

  # Would it, if this policy were there, or this worker?
  kubectl trainyard simulate -f job.yaml -f policy.yaml -f worker.yaml

  # Without any cluster: the workers come from one file, the runtime from another
  kubectl trainyard clusters -o yaml > workers.yaml
  kubectl trainyard simulate --workers workers.yaml -f runtime.yaml -f job.yaml

  # Only the names of the workers
  cat jobs.yaml | kubectl trainyard simulate -f - -o jsonpath='{.spec.cluster}'`

type simulateOptions struct {
	streams
	factory *Factory
	output  *printing.Flags
	files   []string
	workers []string
}

func newSimulate(f *Factory, s streams) *cobra.Command {
	o := simulateOptions{streams: s, factory: f, output: printing.NewFlags()}
	cmd := &cobra.Command{
		Use:   "simulate -f FILENAME",
		Short: "Say where TrainJobs would run, and create nothing",
		Long: `Say on which worker the TrainJobs in some files would run, and why, and create nothing. The decisions are made by the code that the hub
decides with. Several jobs are decided on in the order of the files, and each takes its room. A job without spec.managedBy is decided on
as if Trainyard dispatched it, and a note says that the hub would run it.

The files may have WorkerClusters, DispatchPolicies, ClusterTrainingRuntimes, TrainingRuntimes, PriorityClasses and Namespaces besides.
They replace objects of the same kind and name on the hub. With --workers no cluster is asked at all: only the objects in the files
exist.

What the workers have free is what their status on the hub says, which can be some seconds old, minus what has been placed since and has
no pods yet. What their runtimes are beside the hub's is what the status says, too. It does not say what pods a runtime of a worker's
own makes: the runtime of the hub, or of the files, is assumed, and a note names such workers. Nor does it say what a worker's admission
makes of pods, such as tolerations that it adds: where no node takes the pods without that, the line of the worker says so. Jobs that wait already, reservations and
preemption make no difference, so a job that "would run" can still have to wait behind others.

This needs the rights to list WorkerClusters and DispatchPolicies, and to get the runtimes; better also to list Dispatches and
PriorityClasses, and to get Namespaces. -o json and the other formats print the Dispatches that the hub would write.

The exit code is 0 if there is a worker for each job, 2 if a job would have to wait, and 1 after an error.`,
		Example:           simulateExamples,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.output.Check(); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringSliceVarP(&o.files, "filename", "f", nil, "`files`, directories or URLs with TrainJobs and what else is to count; -: standard input")
	cmd.Flags().StringSliceVar(&o.workers, "workers", nil, "`files` of WorkerClusters, as clusters -o yaml prints them; no cluster is asked then")
	for _, flag := range []string{"filename", "workers"} {
		if err := cmd.MarkFlagFilename(flag, "yaml", "yml", "json"); err != nil {
			panic(err) // There is no such flag.
		}
	}
	addOutput(cmd, o.output)
	return cmd
}

func (o *simulateOptions) run(ctx context.Context) error {
	objects, err := o.readObjects()
	if err != nil {
		return err
	}
	if err := o.notes(objects.Ignored); err != nil {
		return err
	}
	outcome, err := o.decide(ctx, objects)
	if err != nil {
		return err
	}
	if err := o.notes(outcome.Notes); err != nil {
		return err
	}
	if err := o.print(outcome); err != nil {
		return err
	}
	if outcome.Waiting() > 0 {
		return exitCode(exitWaits)
	}
	return nil
}

func (o *simulateOptions) readObjects() (*simulation.Files, error) {
	if len(o.files) == 0 {
		return nil, errors.New("must specify -f: a file with a TrainJob")
	}
	objects, err := manifests.Read(o.In, o.files...)
	if err != nil {
		return nil, err
	}
	if jobs, _ := simulation.Of[*trainer.TrainJob](objects); len(jobs) == 0 {
		return nil, noJobIn(o.files, objects)
	}
	if len(o.workers) > 0 {
		workers, err := manifests.Read(o.In, o.workers...)
		if err != nil {
			return nil, err
		}
		if found, _ := simulation.Of[*v1alpha1.WorkerCluster](workers); len(found) == 0 {
			return nil, fmt.Errorf("no WorkerCluster in %s", strings.Join(o.workers, ", "))
		}
		objects.Add(workers)
	}
	namespace, err := o.namespace()
	if err != nil {
		return nil, err
	}
	return objects, objects.SetNamespace(namespace, o.factory.namespaceFlag() != "")
}

func noJobIn(files []string, objects *simulation.Files) error {
	text := "no TrainJob in " + strings.Join(files, ", ")
	if len(objects.Ignored) > 0 {
		text += "\n" + strings.Join(objects.Ignored, "\n")
	}
	return errors.New(text)
}

// namespace is the namespace of jobs without one. A simulation without a cluster needs no kubeconfig.
func (o *simulateOptions) namespace() (string, error) {
	if len(o.workers) == 0 {
		return o.factory.Namespace()
	}
	return cmp.Or(o.factory.namespaceFlag(), metav1.NamespaceDefault), nil
}

// decide decides with the objects in the files, and with the objects of the hub unless --workers is given.
func (o *simulateOptions) decide(ctx context.Context, objects *simulation.Files) (*simulation.Outcome, error) {
	var behind client.Client
	hint := func(err error) error { return err }
	if len(o.workers) == 0 {
		h, err := o.factory.Hub()
		if err != nil {
			return nil, err
		}
		behind, hint = h, h.Hint
	}
	outcome, err := simulation.Run(ctx, behind, objects, time.Now())
	if err != nil {
		return nil, hint(err)
	}
	return outcome, nil
}

func (o *simulateOptions) print(outcome *simulation.Outcome) error {
	if o.output.ForPeople() {
		return outcome.Print(o.Out, o.output.PrintTable, time.Now())
	}
	objects := make([]runtime.Object, len(outcome.Results))
	for i, result := range outcome.Results {
		objects[i] = result.Dispatch
	}
	return o.output.PrintObjects(o.Out, objects)
}
