// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/copies"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/joblogs"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/multikueue"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/printing"
	"github.com/trainyard/trainyard/internal/hub"
	"github.com/trainyard/trainyard/views/fleet"
)

// completionTimeout is how long a shell waits at Tab when the cluster does not answer.
const completionTimeout = 3 * time.Second

// complete lists possible values. It reports no errors, because a shell has no place for them.
type complete func(ctx context.Context, args []string) []string

func completeFlag(cmd *cobra.Command, flag string, list complete) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		return completed(cmd, args, begun, list)
	})
	if err != nil {
		panic(err) // There is no such flag, or it has a function already.
	}
}

func addOutput(cmd *cobra.Command, flags *printing.Flags) {
	flags.AddTo(cmd)
	completeFlag(cmd, "output", func(context.Context, []string) []string { return flags.Formats() })
}

// completed returns the values that begin with the typed text.
func completed(cmd *cobra.Command, args []string, begun string, list complete) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	names := slices.DeleteFunc(list(ctx, args), func(name string) bool { return !strings.HasPrefix(name, begun) })
	return names, cobra.ShellCompDirectiveNoFileComp
}

type completer struct {
	factory *Factory
}

func (c completer) job(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completed(cmd, args, begun, c.jobs)
}

func (c completer) manyJobs(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	return completed(cmd, args, begun, func(ctx context.Context, args []string) []string {
		return slices.DeleteFunc(c.jobs(ctx, args), func(name string) bool { return slices.Contains(args, name) })
	})
}

func (c completer) jobs(ctx context.Context, _ []string) []string {
	clients, job, ok := c.jobLogs([]string{""})
	if !ok {
		return nil
	}
	names, err := clients.Jobs(ctx, job.Namespace)
	if err != nil {
		return nil
	}
	return names
}

func (c completer) steps(ctx context.Context, args []string) []string {
	clients, job, ok := c.jobLogs(args)
	if !ok {
		return nil
	}
	names, err := clients.Steps(ctx, job)
	if err != nil {
		return nil
	}
	return names
}

func (c completer) containers(ctx context.Context, args []string) []string {
	clients, job, ok := c.jobLogs(args)
	if !ok {
		return nil
	}
	names, err := clients.Containers(ctx, job)
	if err != nil {
		return nil
	}
	return names
}

// jobLogs returns the clients, and the job that the first argument names.
func (c completer) jobLogs(args []string) (clients joblogs.Clients, job types.NamespacedName, ok bool) {
	if len(args) == 0 {
		return clients, job, false
	}
	namespace, err := c.factory.Namespace()
	if err != nil {
		return clients, job, false
	}
	name, err := namedJob.name(args[0])
	if err != nil {
		return clients, job, false
	}
	clients, err = c.factory.jobLogs(multikueue.DefaultNamespace, io.Discard)
	return clients, types.NamespacedName{Namespace: namespace, Name: name}, err == nil
}

func (c completer) namespaces(ctx context.Context, _ []string) []string {
	client, err := c.factory.Kubernetes()
	if err != nil {
		return nil
	}
	list, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

func (c completer) contexts(context.Context, []string) []string {
	names, err := c.factory.Contexts()
	if err != nil {
		return nil
	}
	return names
}

// workers completes names of workers that are not in args yet.
func (c completer) workers(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	return completed(cmd, args, begun, func(ctx context.Context, args []string) []string {
		h, err := c.factory.Hub()
		if err != nil {
			return nil
		}
		workers, err := h.Workers(ctx)
		if err != nil {
			return nil
		}
		return slices.DeleteFunc(hub.WorkerNames(workers), func(name string) bool { return slices.Contains(args, name) })
	})
}

func (c completer) worker(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.workers(cmd, args, begun)
}

// runtime completes the name of a runtime that some worker has otherwise than the hub.
func (c completer) runtime(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completed(cmd, args, begun, func(ctx context.Context, _ []string) []string {
		h, err := c.factory.Hub()
		if err != nil {
			return nil
		}
		workers, err := h.Workers(ctx)
		if err != nil {
			return nil
		}
		var names []string
		for _, runtime := range fleet.Runtimes(workers, "") {
			names = append(names, runtime.Name)
		}
		return slices.Compact(slices.Sorted(slices.Values(names)))
	})
}

// copy completes a worker, and then one of its unknown copies.
func (c completer) copy(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return c.worker(cmd, args, begun)
	}
	return completed(cmd, args, begun, func(ctx context.Context, args []string) []string {
		h, err := c.factory.Hub()
		if err != nil {
			return nil
		}
		name, err := namedWorker.name(args[0])
		if err != nil {
			return nil
		}
		worker, err := h.Worker(ctx, name)
		if err != nil {
			return nil
		}
		return copies.Names(worker)
	})
}

// nameable is what the arguments of a command name. As in kubectl an argument is NAME, or TYPE/NAME as "-o name" prints it.
type nameable struct {
	kind string
	// types are the types that may stand before the name, with their groups.
	types map[string]string
}

var (
	// A Dispatch has the name of its job, and queue -o name prints Dispatches.
	namedJob = nameable{"TrainJob", map[string]string{
		"trainjob": trainer.GroupVersion.Group, "trainjobs": trainer.GroupVersion.Group,
		"dispatch": v1alpha1.GroupVersion.Group, "dispatches": v1alpha1.GroupVersion.Group,
	}}
	namedWorker = nameable{"WorkerCluster", map[string]string{
		"workercluster": v1alpha1.GroupVersion.Group, "workerclusters": v1alpha1.GroupVersion.Group,
		"wc": v1alpha1.GroupVersion.Group,
	}}
	namedRuntime = nameable{"TrainingRuntime", map[string]string{
		"clustertrainingruntime": trainer.GroupVersion.Group, "clustertrainingruntimes": trainer.GroupVersion.Group,
		"trainingruntime": trainer.GroupVersion.Group, "trainingruntimes": trainer.GroupVersion.Group,
	}}
)

// name returns the name in an argument.
func (n nameable) name(argument string) (string, error) {
	before, name, hasType := strings.Cut(argument, "/")
	if !hasType {
		return argument, nil
	}
	resource, group, _ := strings.Cut(strings.ToLower(before), ".") // The group may have a version before it.
	want, known := n.types[resource]
	isType := known && (group == "" || group == want || strings.HasSuffix(group, "."+want))
	if !isType || name == "" || strings.Contains(name, "/") {
		return "", fmt.Errorf("%q does not name a %s: want NAME or %s/NAME", argument, n.kind, strings.ToLower(n.kind))
	}
	return name, nil
}

// arguments gives run the names in a command's arguments.
func (n nameable) arguments(run func(cmd *cobra.Command, names []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		names := make([]string, len(args))
		for i, argument := range args {
			var err error
			if names[i], err = n.name(argument); err != nil {
				return err
			}
		}
		return run(cmd, names)
	}
}
