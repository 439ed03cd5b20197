// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

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
