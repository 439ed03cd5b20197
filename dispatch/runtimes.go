// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"regexp"
	"slices"

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
	// Demand: they differ in something on which the demand of a job depends. So the worker may make other pods.
	Demand bool
	// Paths are the fields that differ, sorted, at most v1alpha1.MaxRuntimePaths. Message has the worker's words, or says
	// how many paths there are.
	Paths   []string
	Message string
	// Own is the spec of the worker's runtime if it may make other pods than the hub's. While a new version of the worker's
	// runtime is being compared, it is the spec of the version before. Nil: the hub's runtime counts.
	Own *RuntimeSpec
	// Assumed says why the hub's runtime counts although the worker's may make other pods. Empty: it makes no others, or Own
	// has it.
	Assumed string
}

// demandPaths match the paths on which a demand depends: how many pods there are, what they request, on which nodes they
// run, how long they may take to stop, and the names by which a TrainJob finds replicated jobs and containers; and the
// paths of objects that have such fields.
var demandPaths = regexp.MustCompile(`^spec\.mlPolicy($|[.\[])|` +
	`(^|\.)(spec|template|replicatedJobs(\[\d+\])?|containers(\[\d+\])?|initContainers(\[\d+\])?)$|` +
	`\.(replicatedJobs|containers|initContainers)\[\d+\]\.name$|\.initContainers\[\d+\]\.restartPolicy$|` +
	`\.replicatedJobs\[\d+\]\.template\.metadata(\.labels(\['trainer\.kubeflow\.org/trainjob-ancestor-step'\])?)?$|` +
	`\.(replicas|parallelism|completions|dependsOn|nodeSelector|tolerations|affinity|resources|resourceClaims|runtimeClassName|ports|` +
	`hostNetwork|overhead|terminationGracePeriodSeconds)($|[.\[])`)

// ChangesDemand says whether a demand depends on a field of a runtime, given as a path like spec.mlPolicy.numNodes.
func ChangesDemand(path string) bool { return demandPaths.MatchString(path) }

// RuntimeSpec is the spec of a runtime. It does not change.
type RuntimeSpec struct {
	// Digest is equal for specs that are equal.
	Digest string
	// JSON is the spec.
	JSON []byte
}

// OwnRuntimes are the runtimes of one kind, namespace and name on all workers on which they may make other pods than the
// hub's. An OwnRuntimes does not change. Nil: there is no such worker.
type OwnRuntimes struct {
	// On has the comparison by worker. Each has Own.
	On map[v1alpha1.ClusterName]Comparison
}

// IsRefused says whether the worker refused to compare the runtimes, so that it is not known how they differ.
func (c *Comparison) IsRefused() bool {
	return c.State == v1alpha1.RuntimeUnsupported || c.State == v1alpha1.RuntimeUnknown
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

// Settles says whether it is known again what a status says of runtimes: each is compared, or not on the worker any more.
func (r *Runtimes) Settles(status []v1alpha1.WorkerRuntime) bool {
	for i := range status {
		comparison, has := r.Of(types.NamespacedName{Namespace: status[i].Namespace, Name: status[i].Name})
		if has && comparison.Version == "" || !has && (r == nil || !r.listed) {
			return false
		}
	}
	return true
}

// reportedRuntimes are what the status of a WorkerCluster says. A runtime that it does not name counts as equal.
func reportedRuntimes(status []v1alpha1.WorkerRuntime) *Runtimes {
	reported := &Runtimes{reported: true, compared: map[types.NamespacedName]Comparison{}}
	for i := range status {
		runtime := &status[i]
		reported.compared[types.NamespacedName{Namespace: runtime.Namespace, Name: runtime.Name}] = Comparison{
			State: runtime.State, Paths: runtime.Paths, Message: runtime.Message,
			// Of many paths the status has the first ones.
			Demand: slices.ContainsFunc(runtime.Paths, ChangesDemand) || len(runtime.Paths) == v1alpha1.MaxRuntimePaths,
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
