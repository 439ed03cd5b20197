// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"slices"
	"strings"

	schedulingv1 "k8s.io/api/scheduling/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/spelling"
)

// ClassError is of a job that names a PriorityClass which it cannot have.
type ClassError struct {
	// Reason for the condition Placed: PriorityClassNotFound or PriorityClassNotAllowed.
	Reason string
	// Message names the field, the class, and those that would do.
	Message string
}

// Error implements error.
func (e *ClassError) Error() string { return e.Message }

func classError(reason, format string, args ...any) error {
	return &ClassError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

const (
	// systemPrefix begins the names of the classes of Kubernetes itself, and highestOfUsers is the highest value of all
	// others.
	systemPrefix   = "system-"
	highestOfUsers = 1_000_000_000
	// longestName is how long the name of an object may be. What is longer is not compared with names, nor shown.
	longestName = 253
)

// PriorityClass is a class that a pod template names.
type PriorityClass struct {
	// ReplicatedJob has the template.
	ReplicatedJob string
	Name          string
}

// Priorities are the PriorityClasses of the hub.
type Priorities []schedulingv1.PriorityClass

// Of returns the priority of a job: the value of the class that its annotation names, or else the highest of its pods' classes, or
// else that of the default class, or 0. A class of pods that is not on the hub counts for nothing: pods are created on a worker, which
// may have others. An annotation is for the hub, and one that names no class of it is a mistake. The error is a
// *ClassError.
//
// A job may name what its policy lets it name, in either place: a class of its pods would have others stopped on the
// worker. The policy may be nil.
func (p Priorities) Of(annotations map[string]string, ofPods []PriorityClass, policy *v1alpha1.DispatchPolicy) (int32, error) {
	for _, class := range ofPods {
		if !p.allows(policy, class.Name) {
			return 0, classError(v1alpha1.ReasonPriorityClassNotAllowed,
				"priorityClassName of replicated job %q, in the runtime or spec.runtimePatches: %s", class.ReplicatedJob, notAllowed(policy, class.Name))
		}
	}
	if name, annotated := annotations[v1alpha1.AnnotationPriorityClass]; annotated {
		class := p.find(name)
		switch {
		case !p.allows(policy, name):
			return 0, classError(v1alpha1.ReasonPriorityClassNotAllowed, "annotation %s: %s", v1alpha1.AnnotationPriorityClass, notAllowed(policy, name))
		case class == nil:
			return 0, classError(v1alpha1.ReasonPriorityClassNotFound, "annotation %s: the hub has no PriorityClass %q; %s",
				v1alpha1.AnnotationPriorityClass, shown(name), p.hint(name))
		}
		return class.Value, nil
	}
	return p.highest(ofPods), nil
}

// highest is the highest value of some classes, or else that of the default class, or 0.
func (p Priorities) highest(ofPods []PriorityClass) int32 {
	var highest *schedulingv1.PriorityClass
	for _, named := range ofPods {
		if class := p.find(named.Name); class != nil && (highest == nil || class.Value > highest.Value) {
			highest = class
		}
	}
	for i := range p {
		if highest == nil && p[i].GlobalDefault {
			highest = &p[i]
		}
	}
	if highest == nil {
		return 0
	}
	return highest.Value
}

// allows says whether a job of a policy may name a class.
func (p Priorities) allows(policy *v1alpha1.DispatchPolicy, name string) bool {
	if policy != nil && len(policy.Spec.PriorityClasses) > 0 {
		return slices.Contains(policy.Spec.PriorityClasses, name)
	}
	class := p.find(name)
	return !strings.HasPrefix(name, systemPrefix) && (class == nil || class.Value <= highestOfUsers)
}

// notAllowed says what a job of a policy may name instead.
func notAllowed(policy *v1alpha1.DispatchPolicy, name string) string {
	if policy == nil || len(policy.Spec.PriorityClasses) == 0 {
		return fmt.Sprintf("PriorityClass %q is the system's, and no spec.priorityClasses of a DispatchPolicy lets the job name it", shown(name))
	}
	return fmt.Sprintf("DispatchPolicy %s (spec.priorityClasses) does not let the job name PriorityClass %q; it may name: %s",
		policy.Name, shown(name), strings.Join(policy.Spec.PriorityClasses, ", "))
}

// Has says whether there is a class of that name.
func (p Priorities) Has(name string) bool { return p.find(name) != nil }

func (p Priorities) find(name string) *schedulingv1.PriorityClass {
	for i := range p {
		if p[i].Name == name {
			return &p[i]
		}
	}
	return nil
}

// hint names the class that may have been meant, or all.
func (p Priorities) hint(name string) string {
	names := make([]string, len(p))
	for i := range p {
		names[i] = p[i].Name
	}
	if nearest := spelling.Nearest(shown(name), names); nearest != "" {
		return fmt.Sprintf("did you mean %q?", nearest)
	}
	return "it has: " + strings.Join(names, ", ")
}

// shown is a name as it is said: it is a user's, and can be as long as an annotation.
func shown(name string) string {
	if len(name) <= longestName {
		return name
	}
	return strings.ToValidUTF8(name[:longestName], "") + "..."
}
