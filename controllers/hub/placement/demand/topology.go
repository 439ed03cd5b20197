// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// PodTopology is what the pod template of a replicated job says to Kueue about the topology of its pods.
type PodTopology struct {
	// ReplicatedJob has the template.
	ReplicatedJob string
	// Required and Preferred are labels of nodes. Nil: the template does not have the annotation.
	Required, Preferred *string
}

// podTopology reads a pod template. ok is false if it says nothing.
func podTopology(name string, template *corev1apply.PodTemplateSpecApplyConfiguration) (topology PodTopology, ok bool) {
	if template == nil || template.ObjectMetaApplyConfiguration == nil {
		return PodTopology{}, false
	}
	topology.ReplicatedJob = name
	if label, has := template.Annotations[v1alpha1.AnnotationKueueRequiredTopology]; has {
		topology.Required = &label
	}
	if label, has := template.Annotations[v1alpha1.AnnotationKueuePreferredTopology]; has {
		topology.Preferred = &label
	}
	return topology, topology.Required != nil || topology.Preferred != nil
}

// topologyOf returns the topology of a job: that of its annotation, or else that of its pods. nil: it has none. The error
// is an Obstacle.
func topologyOf(annotations map[string]string, ofPods []PodTopology) (*dispatch.Topology, error) {
	if text, annotated := annotations[v1alpha1.AnnotationTopology]; annotated {
		topology, err := dispatch.ParseTopology(text)
		if err != nil {
			return nil, obstacle(v1alpha1.ReasonInvalidTopology, "annotation %s: %v", v1alpha1.AnnotationTopology, err)
		}
		return topology, nil
	}
	for i := range ofPods {
		if err := ofPods[i].fault(); err != nil {
			return nil, obstacle(v1alpha1.ReasonInvalidTopology, "pod template of replicated job %q, in the runtime or spec.runtimePatches: %v",
				ofPods[i].ReplicatedJob, err)
		}
	}
	return ofRequired(ofPods)
}

// fault says what is wrong with the annotations of a pod template. A preference for single nodes is no fault: many jobs
// have it for the Kueue of their worker.
func (p *PodTopology) fault() error {
	if p.Required != nil && p.Preferred != nil {
		return fmt.Errorf("annotations %s and %s exclude each other; remove one of them",
			v1alpha1.AnnotationKueueRequiredTopology, v1alpha1.AnnotationKueuePreferredTopology)
	}
	key, label := v1alpha1.AnnotationKueueRequiredTopology, p.Required
	if label == nil {
		if key, label = v1alpha1.AnnotationKueuePreferredTopology, p.Preferred; *label == corev1.LabelHostname {
			return nil
		}
	}
	if err := dispatch.CheckTopologyLabel(*label); err != nil {
		return fmt.Errorf("annotation %s: %w", key, err)
	}
	return nil
}

// ofRequired returns the topology of the pods that require one, or else of those that prefer one. All pods with the
// same label run in one domain together. Only one label can be required. Preferences for several labels do not count.
func ofRequired(ofPods []PodTopology) (*dispatch.Topology, error) {
	required, preferred := &dispatch.Topology{Required: true}, &dispatch.Topology{}
	several := false
	for _, p := range ofPods {
		switch {
		case p.Required == nil && *p.Preferred == corev1.LabelHostname:
		case p.Required == nil:
			several = several || preferred.Label != "" && preferred.Label != *p.Preferred
			preferred.Label, preferred.PodSets = *p.Preferred, append(preferred.PodSets, p.ReplicatedJob)
		case required.Label != "" && required.Label != *p.Required:
			return nil, obstacle(v1alpha1.ReasonInvalidTopology, "replicated jobs %q and %q, in the runtime or spec.runtimePatches: annotation %s "+
				"names two labels, %s and %s; give both the same", required.PodSets[0], p.ReplicatedJob,
				v1alpha1.AnnotationKueueRequiredTopology, required.Label, *p.Required)
		default:
			required.Label, required.PodSets = *p.Required, append(required.PodSets, p.ReplicatedJob)
		}
	}
	switch {
	case required.Label != "":
		return sorted(required), nil
	case preferred.Label != "" && !several:
		return sorted(preferred), nil
	}
	return nil, nil //nolint:nilnil // Nil is a topology that says nothing.
}

func sorted(topology *dispatch.Topology) *dispatch.Topology {
	slices.Sort(topology.PodSets)
	return topology
}
