// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"math"
	"slices"
	"strings"

	schedulingv1 "k8s.io/api/scheduling/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/spelling"
)

const (
	// systemPrefix begins the names of Kubernetes' own classes. highestOfUsers is the highest value of all other classes.
	systemPrefix   = "system-"
	highestOfUsers = 1_000_000_000
	// longestName is the maximum length of an object's name. Longer names are neither compared nor shown.
	longestName = 253
)

// PriorityClass is a class that a pod template names.
type PriorityClass struct {
	// ReplicatedJob is the replicated job that has the template.
	ReplicatedJob string
	Name          string
}

// Priorities are the PriorityClasses of the hub.
type Priorities []schedulingv1.PriorityClass

// Named is what a job says about its priority.
type Named struct {
	// Annotations are the TrainJob's.
	Annotations map[string]string
	// OfPods are the classes of its pods.
	OfPods []PriorityClass
	// OfWorkload is the priority of its Workload, nil if the hub's Kueue has none for the job.
	OfWorkload *int32
	// OfQueue is the WorkloadPriorityClass that the copy would bring to the Kueue of its worker, empty if it brings none.
	OfQueue string
}

// Of returns the priority of a job: the value of the class in its annotation, or else the priority of its Workload, or
// else the highest value of its pods' classes, or else the value of the default class, or 0. A class of pods that the
// hub does not have does not count: pods are created on a worker, which may have other classes. An annotation is for
// the hub, so an unknown class in it is a mistake. The error is an *Obstacle
// that names the field, the class, and the classes that are possible.
//
// In annotation and pods a job may name only classes that its policy permits: with a class of its pods, the worker
// would stop other pods. If the policy has a list, it is also the list of WorkloadPriorityClasses that go to workers: with
// another one, the worker's Kueue would stop other Workloads. A user may give a Workload any WorkloadPriorityClass. So the Workload's priority counts only
// up to the highest value that the job could have without it. The policy may be nil.
func (p Priorities) Of(named Named, policy *v1alpha1.DispatchPolicy) (int32, error) {
	annotations, ofPods := named.Annotations, named.OfPods
	for _, class := range ofPods {
		if !p.allows(policy, class.Name) {
			return 0, obstacle(v1alpha1.ReasonPriorityClassNotAllowed,
				"priorityClassName of replicated job %q, in the runtime or spec.runtimePatches: %s", class.ReplicatedJob, notAllowed(policy, class.Name))
		}
	}
	if !policy.AllowsWorkloadPriorityClass(named.OfQueue) {
		return 0, obstacle(v1alpha1.ReasonPriorityClassNotAllowed, "label %s: DispatchPolicy %s (spec.priorityClasses) does not let the "+
			"job name WorkloadPriorityClass %q; it may name: %s", v1alpha1.LabelWorkloadPriorityClass, policy.Name, shown(named.OfQueue),
			strings.Join(policy.Spec.PriorityClasses, ", "))
	}
	if name, annotated := annotations[v1alpha1.AnnotationPriorityClass]; annotated {
		class := p.find(name)
		switch {
		case !p.allows(policy, name):
			return 0, obstacle(v1alpha1.ReasonPriorityClassNotAllowed, "annotation %s: %s", v1alpha1.AnnotationPriorityClass, notAllowed(policy, name))
		case class == nil:
			return 0, obstacle(v1alpha1.ReasonPriorityClassNotFound, "annotation %s: the hub has no PriorityClass %q; %s",
				v1alpha1.AnnotationPriorityClass, shown(name), p.hint(name))
		}
		return class.Value, nil
	}
	own := p.highest(ofPods)
	if named.OfWorkload == nil {
		return own, nil
	}
	return min(*named.OfWorkload, max(own, p.limit(policy))), nil
}

// limit is the highest value of the classes that a job of a policy may name.
func (p Priorities) limit(policy *v1alpha1.DispatchPolicy) int32 {
	if policy == nil || len(policy.Spec.PriorityClasses) == 0 {
		return highestOfUsers
	}
	highest := int32(math.MinInt32)
	for _, name := range policy.Spec.PriorityClasses {
		if class := p.find(name); class != nil {
			highest = max(highest, class.Value)
		}
	}
	return highest
}

// highest is the highest value of some classes, or else the value of the default class, or 0.
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

// allows is true if a job of a policy may name a class.
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

// Has is true if there is a class of that name.
func (p Priorities) Has(name string) bool { return p.find(name) != nil }

func (p Priorities) find(name string) *schedulingv1.PriorityClass {
	for i := range p {
		if p[i].Name == name {
			return &p[i]
		}
	}
	return nil
}

// hint names the class that the user may have meant, or all classes.
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

// shown returns a name for a message. A user's name can be as long as an annotation.
func shown(name string) string {
	if len(name) <= longestName {
		return name
	}
	return strings.ToValidUTF8(name[:longestName], "") + "..."
}
