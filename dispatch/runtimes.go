// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// RequiredRuntime is the hub's runtime that a job needs on its worker, because its policy says Same.
type RequiredRuntime struct {
	// Key of the runtime. Without a namespace it is a ClusterTrainingRuntime.
	Key types.NamespacedName
	// Version of the hub's runtime, "<UID>.<generation>".
	Version string
	// Propagated: the manager may bring the hub's runtime to a worker, and replace what it brought before.
	Propagated bool
}

// PinnedBy is what a policy makes of Dispatch.spec.runtime.
func PinnedBy(policy *v1alpha1.DispatchPolicy) v1alpha1.RuntimeRule {
	if policy.Rules().Runtime == v1alpha1.RuntimePin {
		return v1alpha1.RuntimePin
	}
	return ""
}

// Comparison says how a worker's runtime differs from the hub's runtime of the same kind, namespace and name.
type Comparison struct {
	// Version of the hub's runtime that was compared, "<UID>.<generation>". Empty: nothing has been compared yet.
	Version string
	// State is empty if the runtimes are equal.
	State v1alpha1.RuntimeState
	// Foreign: this hub has not made the worker's runtime, and brings nothing in its place.
	Foreign bool
	// Outdated: the manager has made the worker's runtime from an earlier version of the hub's, and may replace it.
	Outdated bool
	// Demand: they differ in something on which the demand of a job depends, so the hub counts pods that will not be.
	Demand bool
	// Paths are the fields that differ, sorted, at most v1alpha1.MaxRuntimePaths. Message has the worker's words, or says
	// how many paths there are.
	Paths   []string
	Message string
}

// Difference says in words what is known of a difference, empty if the runtimes are equal.
func (c *Comparison) Difference() string {
	switch c.State {
	case v1alpha1.RuntimeDiffers:
		return "it differs in " + list(c.Paths, ", ")
	case v1alpha1.RuntimeUnsupported:
		return "the worker refuses the hub's: " + c.Message
	case v1alpha1.RuntimeUnknown:
		return "it cannot be compared with the hub's: " + c.Message
	}
	return ""
}

// Runtimes are the runtimes of a worker that have been compared with the hub's. A Runtimes does not change. Nil: nothing
// is known.
type Runtimes struct {
	compared map[types.NamespacedName]Comparison
	// listed: a runtime that is not in compared is not on the worker.
	listed bool
	// reported: they are from a status, which names only those that are not equal, and no versions.
	reported bool
}

// NewRuntimes returns the Runtimes of a worker from comparisons that do not change any more. listed: the worker has no
// other runtimes.
func NewRuntimes(compared map[types.NamespacedName]Comparison, listed bool) *Runtimes {
	return &Runtimes{compared: compared, listed: listed}
}

// Of returns the comparison of a runtime. has is false if the worker has no such runtime, as far as is known.
func (r *Runtimes) Of(key types.NamespacedName) (comparison Comparison, has bool) {
	if r != nil {
		comparison, has = r.compared[key]
	}
	return comparison, has
}

// reportedRuntimes are what the status of a WorkerCluster says. A runtime that it does not name counts as equal.
func reportedRuntimes(status []v1alpha1.WorkerRuntime) *Runtimes {
	reported := &Runtimes{reported: true, compared: map[types.NamespacedName]Comparison{}}
	for i := range status {
		runtime := &status[i]
		reported.compared[types.NamespacedName{Namespace: runtime.Namespace, Name: runtime.Name}] = Comparison{
			State: runtime.State, Paths: runtime.Paths, Message: runtime.Message,
		}
	}
	return reported
}

// objection says why a worker with these runtimes may not take a job that needs one of the hub. Empty: it may.
func (r *Runtimes) objection(needed *RequiredRuntime) string {
	if needed == nil {
		return ""
	}
	comparison, has := r.Of(needed.Key)
	name := describeRuntime(needed.Key)
	switch {
	case r != nil && r.reported && comparison.State == "":
		return ""
	case !has && (r == nil || !r.listed), has && !r.reported && comparison.Version != needed.Version:
		return fmt.Sprintf("it is not known yet whether %s of the worker is equal to the hub's", name)
	case !has && !needed.Propagated:
		return fmt.Sprintf("the worker has no %s, and the policy does not let it be created", name)
	case !has, comparison.State == "":
		return ""
	case comparison.State == v1alpha1.RuntimeDiffers && comparison.Outdated && needed.Propagated:
		return "" // It is replaced before the copy is created.
	case comparison.State == v1alpha1.RuntimeDiffers && comparison.Outdated:
		return fmt.Sprintf("%s of the worker is an earlier version of the hub's, and the policy does not let it be replaced", name)
	}
	return fmt.Sprintf("%s of the worker is not the hub's: %s", name, comparison.Difference())
}

func describeRuntime(key types.NamespacedName) string {
	if key.Namespace == "" {
		return "ClusterTrainingRuntime " + key.Name
	}
	return "TrainingRuntime " + key.String()
}
