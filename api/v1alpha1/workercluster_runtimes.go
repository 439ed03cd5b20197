// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RuntimeState says in which way a worker's runtime is not the hub's runtime of the same kind, namespace and name.
// +kubebuilder:validation:Enum=Differs;Unsupported;Unknown
type RuntimeState string

const (
	// RuntimeDiffers says: the spec on the worker is not what the worker would make of the hub's spec.
	RuntimeDiffers RuntimeState = "Differs"
	// RuntimeUnsupported says: the worker refuses the hub's spec, because it does not know a field or an admission refuses it.
	RuntimeUnsupported RuntimeState = "Unsupported"
	// RuntimeUnknown says: the worker does not let the hub compare.
	RuntimeUnknown RuntimeState = "Unknown"
)

// MaxWorkerRuntimes and MaxRuntimePaths are how many runtimes of a worker, and how many paths of each, a status has.
const (
	MaxWorkerRuntimes = 64
	MaxRuntimePaths   = 8
)

// WorkerRuntime is a runtime of a worker that is not known to be the hub's runtime of the same kind, namespace and name.
type WorkerRuntime struct {
	// kind is TrainingRuntime or ClusterTrainingRuntime.
	// +kubebuilder:validation:Enum=TrainingRuntime;ClusterTrainingRuntime
	Kind string `json:"kind"`
	// namespace is the namespace of a TrainingRuntime.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// name is the name of the runtime.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// state says what is wrong. Differs: the worker's spec is another one. Unsupported: the worker refuses the hub's spec,
	// because it does not know a field, say. Unknown: the worker does not let the hub compare.
	State RuntimeState `json:"state"`
	// paths are the fields of the spec that differ, the first 8 in alphabetical order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=256
	Paths []string `json:"paths,omitempty"`
	// message has the words of a worker that refuses the hub's spec or the comparison, or says how many paths there are.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// since is when the hub has found the state.
	Since metav1.Time `json:"since"`
}
