// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	schedulingv1 "k8s.io/api/scheduling/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/internal/spelling"
)

// priorities are the hub's PriorityClasses.
type priorities struct {
	values map[string]int32
	// usual is the value of the class that is the default of the cluster, 0 if there is none.
	usual int32
}

func listPriorities(ctx context.Context, hub client.Reader) (priorities, error) {
	var classes schedulingv1.PriorityClassList
	if err := hub.List(ctx, &classes, client.UnsafeDisableDeepCopy); err != nil {
		return priorities{}, fmt.Errorf("list PriorityClasses: %w", err)
	}
	p := priorities{values: make(map[string]int32, len(classes.Items))}
	for i := range classes.Items {
		class := &classes.Items[i]
		p.values[class.Name] = class.Value
		if class.GlobalDefault {
			p.usual = class.Value
		}
	}
	return p, nil
}

// of returns the priority of a job: that of the class which its annotation names, or else the highest of its pods, or else the usual
// one. A class of pods that is not on the hub counts for nothing: pods are created on a worker, which may have others. An annotation
// is for the hub, and one that names no class of it is a mistake, which the verdict tells.
func (p priorities) of(annotations map[string]string, ofPods []string) (int32, *dispatch.Decision) {
	if name, annotated := annotations[v1alpha1.AnnotationPriorityClass]; annotated {
		value, known := p.values[name]
		if !known {
			return 0, &dispatch.Decision{Reason: v1alpha1.ReasonPriorityClassNotFound, Message: p.missing(name)}
		}
		return value, nil
	}
	highest, found := p.usual, false
	for _, name := range ofPods {
		if value, known := p.values[name]; known && (!found || value > highest) {
			highest, found = value, true
		}
	}
	return highest, nil
}

// missing is what a user can act on.
func (p priorities) missing(name string) string {
	names := slices.Sorted(maps.Keys(p.values))
	hint := "the hub has " + strings.Join(names, ", ")
	if nearest := spelling.Nearest(name, names); nearest != "" {
		hint = fmt.Sprintf("did you mean %q?", nearest)
	}
	return fmt.Sprintf("annotation %s: the hub has no PriorityClass %q; %s", v1alpha1.AnnotationPriorityClass, name, hint)
}
