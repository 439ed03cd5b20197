// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/joblogs"
)

// completionTimeout is how long a shell waits at Tab when the cluster does not answer.
const completionTimeout = 3 * time.Second

// complete lists possible values. It reports no errors, because a shell has no place for them.
type complete func(ctx context.Context, args []string) []string

func (f *Factory) completeFlag(cmd *cobra.Command, flag string, list complete) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		return completed(cmd, args, begun, list)
	})
	if err != nil {
		panic(err) // There is no such flag, or it has a function already.
	}
}

// completeJob completes the argument of a command that takes one TrainJob.
func (f *Factory) completeJob(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completed(cmd, args, begun, f.completeJobs)
}

// completed returns the values that begin with the typed text.
func completed(cmd *cobra.Command, args []string, begun string, list complete) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	names := slices.DeleteFunc(list(ctx, args), func(name string) bool { return !strings.HasPrefix(name, begun) })
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (f *Factory) completeJobs(ctx context.Context, _ []string) []string {
	clients, job, ok := f.completionClients([]string{""})
	if !ok {
		return nil
	}
	names, err := clients.Jobs(ctx, job.Namespace)
	if err != nil {
		return nil
	}
	return names
}

func (f *Factory) completeSteps(ctx context.Context, args []string) []string {
	clients, job, ok := f.completionClients(args)
	if !ok {
		return nil
	}
	names, err := clients.Steps(ctx, job)
	if err != nil {
		return nil
	}
	return names
}

func (f *Factory) completeContainers(ctx context.Context, args []string) []string {
	clients, job, ok := f.completionClients(args)
	if !ok {
		return nil
	}
	names, err := clients.Containers(ctx, job)
	if err != nil {
		return nil
	}
	return names
}

// completionClients returns the clients, and the job that the first argument names.
func (f *Factory) completionClients(args []string) (clients joblogs.Clients, job types.NamespacedName, ok bool) {
	if len(args) == 0 {
		return clients, job, false
	}
	namespace, err := f.Namespace()
	if err != nil {
		return clients, job, false
	}
	clients, err = f.logsClients()
	return clients, types.NamespacedName{Namespace: namespace, Name: args[0]}, err == nil
}

func (f *Factory) completeNamespaces(ctx context.Context, _ []string) []string {
	client, err := f.Kubernetes()
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

func (f *Factory) completeContexts(context.Context, []string) []string {
	config, err := f.Flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(config.Contexts))
}
