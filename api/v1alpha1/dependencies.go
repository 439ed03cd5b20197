// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "strings"

const (
	// LabelPropagate on a Secret, ConfigMap or ServiceAccount of the hub, with the value PropagateYes, lets the manager bring
	// it to the workers of jobs of its namespace whose pods name it. It is the consent of whoever may write the object, for
	// all who may create TrainJobs there.
	//
	// It is a label and not an annotation, because a watch can select labels: of objects without it the manager reads nothing.
	LabelPropagate = "trainyard.dev/propagate"
	// PropagateYes is the value of LabelPropagate that gives consent.
	PropagateYes = "true"
	// LabelDependencies on a namespace of a worker, with the value "true", lets hubs bring such objects into it. An admin of
	// the worker sets it. Namespaces with LabelPropagatedBy need no such label.
	LabelDependencies = "trainyard.dev/dependencies"
	// AnnotationDependencies on a copy names the objects that were brought to the worker for it: "Secret/a,ConfigMap/b". They
	// stay while the copy runs, also if the hub has lost its record of the copy.
	AnnotationDependencies = "trainyard.dev/dependencies"
	// MaxDependencies is how many objects a Dispatch names.
	MaxDependencies = 64
)

// Dependency names an object in the namespace of a job.
type Dependency struct {
	// kind is the kind of the object.
	// +kubebuilder:validation:Enum=ConfigMap;Secret;ServiceAccount
	Kind string `json:"kind"`
	// name is the name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// String is "KIND/NAME", as in AnnotationDependencies.
func (d Dependency) String() string { return d.Kind + "/" + d.Name }

// Of returns the kind of the policy to which the object belongs.
func (d Dependency) Of() DependencyKind { return DependencyKind(d.Kind + "s") }

// DependencyNames is the value of AnnotationDependencies.
func DependencyNames(dependencies []Dependency) string {
	names := make([]string, len(dependencies))
	for i, dependency := range dependencies {
		names[i] = dependency.String()
	}
	return strings.Join(names, ",")
}

// ParseDependencyNames reads a value of AnnotationDependencies. What is no name is left out.
func ParseDependencyNames(names string) (dependencies []Dependency) {
	for name := range strings.SplitSeq(names, ",") {
		if kind, of, ok := strings.Cut(name, "/"); ok {
			dependencies = append(dependencies, Dependency{Kind: kind, Name: of})
		}
	}
	return dependencies
}

// PropagatedDependency names an object that the manager has brought to a worker, or is about to.
type PropagatedDependency struct {
	// namespace is the namespace of the object.
	// +kubebuilder:validation:MaxLength=63
	Namespace  string `json:"namespace"`
	Dependency `json:",inline"`
}
