// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Topology says that pods of a job belong together in one domain of a worker. A nil Topology says nothing.
type Topology struct {
	// Label is the label of nodes whose values are the domains.
	Label string
	// Required: without a domain that has room for all of the pods, the job does not fit. Otherwise the pods run in one
	// domain where a domain has room for them, and anywhere on the worker if none has.
	Required bool
	// PodSets are the names of the PodSets whose pods belong together. Nil: all that run at the same time as the trainer. So
	// initializers that run before the other pods may run anywhere.
	PodSets []string
}

// The words of the annotation v1alpha1.AnnotationTopology.
const (
	topologyRequired  = "required"
	topologyPreferred = "preferred"
)

// maxTopology is how long the annotation may be, in bytes. Labels have at most 317.
const maxTopology = 512

// ParseTopology returns the topology of the annotation v1alpha1.AnnotationTopology. The error says what would be right,
// without the name of the annotation.
func ParseTopology(text string) (*Topology, error) {
	const usage = "must be required=LABEL or preferred=LABEL with one label of nodes, such as required=nvidia.com/gpu.clique"
	word, label, ok := strings.Cut(text, "=")
	switch {
	case len(text) > maxTopology:
		return nil, fmt.Errorf("%s; it has %d bytes", usage, len(text))
	case !ok || word != topologyRequired && word != topologyPreferred || strings.ContainsAny(label, ",;= "):
		return nil, fmt.Errorf("%s; it is %q", usage, text)
	}
	if err := CheckTopologyLabel(label); err != nil {
		return nil, fmt.Errorf("%s: %w", usage, err)
	}
	return &Topology{Label: label, Required: word == topologyRequired}, nil
}

// CheckTopologyLabel says why a label cannot name domains.
func CheckTopologyLabel(label string) error {
	if label == corev1.LabelHostname {
		return fmt.Errorf("label %s names single nodes, which are not counted one by one; name a label that several nodes share", label)
	}
	if faults := validation.IsQualifiedName(label); len(faults) > 0 {
		return fmt.Errorf("%q is not the key of a label: %s", Cut(label), faults[0])
	}
	return nil
}

// IsRequired says whether the job fits only in a domain.
func (t *Topology) IsRequired() bool { return t != nil && t.Required }

// covers says whether the pods of a PodSet belong to those that run in one domain.
func (t *Topology) covers(set *v1alpha1.PodSet) bool {
	if t.PodSets == nil {
		return PhaseOf(set) != 0
	}
	return slices.Contains(t.PodSets, set.Name)
}

// covered returns the PodSets whose pods run in one domain.
func (t *Topology) covered(podSets []v1alpha1.PodSet) []v1alpha1.PodSet {
	var covered []v1alpha1.PodSet
	for i := range podSets {
		if t.covers(&podSets[i]) {
			covered = append(covered, podSets[i])
		}
	}
	return covered
}

// within returns the PodSets with pods that select a domain. Pods that select another value of the label stay as they
// are: no domain has places for them and for the others.
func (t *Topology) within(podSets []v1alpha1.PodSet, value string) []v1alpha1.PodSet {
	podSets = slices.Clone(podSets)
	for i := range podSets {
		set := &podSets[i]
		if _, selects := set.NodeSelector[t.Label]; selects || !t.covers(set) {
			continue
		}
		selector := maps.Clone(set.NodeSelector)
		if selector == nil {
			selector = map[string]string{}
		}
		selector[t.Label] = value
		set.NodeSelector = selector
	}
	return podSets
}

// domain returns a domain of the topology, nil for no value.
func (t *Topology) domain(value string) *v1alpha1.Domain {
	if value == "" {
		return nil
	}
	return &v1alpha1.Domain{Label: t.Label, Value: value}
}

// PodSetsIn is the demand of the job in a domain of a worker, as Decide has chosen it. It is PodSetsOn without a domain.
func (j *Job) PodSetsIn(worker v1alpha1.ClusterName, domain *v1alpha1.Domain) []v1alpha1.PodSet {
	if domain == nil || j.Topology == nil {
		return j.PodSetsOn(worker)
	}
	return j.Topology.within(j.PodSetsOn(worker), domain.Value)
}

// excludes says whether the job excludes a worker as a whole.
func (j *Job) excludes(worker v1alpha1.ClusterName) bool {
	why, is := j.Excluded[worker]
	return is && why.Domain == (v1alpha1.Domain{})
}

// OnlyDomainExcluded says whether the job excludes a domain of a worker, and may go to its other domains.
func (j *Job) OnlyDomainExcluded(worker v1alpha1.ClusterName) bool { return j.avoids(worker) != "" }

// avoids is the value of the domain of a worker that the job excludes, empty if it excludes none.
func (j *Job) avoids(worker v1alpha1.ClusterName) string {
	if domain := j.Excluded[worker].Domain; j.Topology != nil && domain.Label == j.Topology.Label {
		return domain.Value
	}
	return ""
}
