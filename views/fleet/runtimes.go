// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/views/output"
)

// Runtime is a runtime of a worker that is not known to be the hub's.
type Runtime struct {
	Worker string
	v1alpha1.WorkerRuntime
}

// Runtimes returns the runtimes of workers that are not known to be the hub's, sorted by runtime and worker. With a name
// it returns only runtimes of that name, in any namespace.
func Runtimes(clusters []v1alpha1.WorkerCluster, name string) (all []Runtime) {
	for i := range clusters {
		for _, runtime := range clusters[i].Status.Runtimes {
			if name == "" || runtime.Name == name {
				all = append(all, Runtime{Worker: clusters[i].Name, WorkerRuntime: runtime})
			}
		}
	}
	slices.SortFunc(all, func(a, b Runtime) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Worker, b.Worker))
	})
	return all
}

// RuntimeTable returns a table of runtimes of workers.
func RuntimeTable(all []Runtime, now time.Time) *metav1.Table {
	table := output.NewTable(
		output.Column{Name: "Namespace"}, output.Column{Name: "Runtime"}, output.Column{Name: "Worker"}, output.Column{Name: "State"},
		output.Column{Name: "Since"}, output.Column{Name: "First-Path"}, output.Column{Name: "Kind", Wide: true}, output.Column{Name: "Message", Wide: true})
	for i := range all {
		r := &all[i]
		path := output.None
		if len(r.Paths) > 0 {
			path = r.Paths[0]
		}
		if more := len(r.Paths) - 1; more > 0 {
			path = fmt.Sprintf("%s (+%d)", path, more)
		}
		output.Add(table, output.Or(r.Namespace, output.None), r.Name, r.Worker, string(r.State), output.Age(r.Since, now), path, r.Kind, r.Message)
	}
	return table
}

// Differences is a text that says how runtimes of workers differ from the hub's.
func Differences(all []Runtime) string {
	var b strings.Builder
	for i := range all {
		r := &all[i]
		name := r.Name
		if r.Namespace != "" {
			name = r.Namespace + "/" + r.Name
		}
		fmt.Fprintf(&b, "\n%s %s on worker %s: %s\n", r.Kind, name, r.Worker, r.State)
		for _, path := range r.Paths {
			fmt.Fprintf(&b, "  %s\n", path)
		}
		if r.Message != "" {
			fmt.Fprintf(&b, "  %s\n", r.Message)
		}
	}
	return b.String()
}
