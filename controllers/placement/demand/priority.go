// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"strings"

	schedulingv1 "k8s.io/api/scheduling/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/spelling"
)

// Priorities are the PriorityClasses of the hub.
type Priorities []schedulingv1.PriorityClass

// Of returns the priority of a job: the value of the class that its annotation names, or else the highest of its pods' classes, or
// else that of the default class, or 0. A class of pods that is not on the hub counts for nothing: pods are created on a worker, which
// may have others. An annotation is for the hub, and one that names no class of it is a mistake, which the error tells.
func (p Priorities) Of(annotations map[string]string, ofPods []string) (int32, error) {
	if name, annotated := annotations[v1alpha1.AnnotationPriorityClass]; annotated {
		if class := p.find(name); class != nil {
			return class.Value, nil
		}
		return 0, fmt.Errorf("annotation %s: the hub has no PriorityClass %q; %s", v1alpha1.AnnotationPriorityClass, name, p.hint(name))
	}
	var highest *schedulingv1.PriorityClass
	for _, name := range ofPods {
		if class := p.find(name); class != nil && (highest == nil || class.Value > highest.Value) {
			highest = class
		}
	}
	for i := range p {
		if highest == nil && p[i].GlobalDefault {
			highest = &p[i]
		}
	}
	if highest == nil {
		return 0, nil
	}
	return highest.Value, nil
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
	if nearest := spelling.Nearest(name, names); nearest != "" {
		return fmt.Sprintf("did you mean %q?", nearest)
	}
	return "it has: " + strings.Join(names, ", ")
}
