// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/webhooks/validation"
)

const ruleHubTooLate = "CopyExists"

// mostNames is how many names a warning lists.
const mostNames = 10

// tooLate refuses changes of the spec that would not reach a copy that is there. A change of labels and annotations is
// only a warning, because not only the user writes them.
func (h *validator) tooLate(ctx context.Context, old, job *trainer.TrainJob) (found validation.Result, err error) {
	fields, names := uncopiedFields(old, job), uncopiedNames(old, job)
	if len(fields)+len(names) == 0 || validation.IsSuspended(old) || validation.IsSuspended(job) {
		return found, nil // The copy of a suspended job is deleted. The next copy is made of the job as it is then.
	}
	worker, err := h.Hub.PlacedOn(ctx, types.NamespacedName{Namespace: job.Namespace, Name: job.Name}, job.UID)
	if err != nil || worker == "" {
		return found, err
	}
	for _, f := range fields {
		found.Faults = append(found.Faults, validation.Fault{Rule: ruleHubTooLate, Err: field.Forbidden(f.path, fmt.Sprintf(
			"%smay change only while the TrainJob is suspended: its copy on worker %q is made, and would not get the change; "+
				"set spec.suspend to true, in this request or before, and resume the TrainJob later", f.what, worker))})
	}
	if len(names) > 0 {
		found.Warn("%s: the copy on worker %q is made, and does not get the change", listWarned(names), worker)
	}
	return found, nil
}

// uncopied is a field that has changed.
type uncopied struct {
	path *field.Path
	// what says which part has changed. Empty: everything has.
	what string
}

// uncopiedFields returns the fields of the spec that have changed and that a copy has. The rules of the CRD let a field
// be set that was absent. The entry of the hub's Kueue is in no copy.
func uncopiedFields(old, job *trainer.TrainJob) (changed []uncopied) {
	var managers []string
	before, after := patchesByManager(old), patchesByManager(job)
	for manager, patch := range after {
		if was, had := before[manager]; !had || !validation.SamePatch(was, patch) {
			managers = append(managers, manager)
		}
	}
	for manager := range before {
		if _, has := after[manager]; !has {
			managers = append(managers, manager)
		}
	}
	if len(managers) > 0 {
		slices.Sort(managers)
		changed = append(changed, uncopied{path: validation.PatchesPath, what: "the entries of " + strings.Join(managers, ", ") + " "})
	}
	spec := field.NewPath("spec")
	for _, f := range []struct {
		name     string
		was, has any
	}{
		{"activeDeadlineSeconds", old.Spec.ActiveDeadlineSeconds, job.Spec.ActiveDeadlineSeconds},
		{"initializer", old.Spec.Initializer, job.Spec.Initializer},
		{"trainer", old.Spec.Trainer, job.Spec.Trainer},
	} {
		if !equality.Semantic.DeepEqual(f.was, f.has) {
			changed = append(changed, uncopied{path: spec.Child(f.name)})
		}
	}
	return changed
}

func patchesByManager(job *trainer.TrainJob) map[string]trainer.RuntimePatch {
	all := map[string]trainer.RuntimePatch{}
	for _, patch := range job.Spec.RuntimePatches {
		if !trainjobs.StaysOnHub(patch.Manager) {
			all[patch.Manager] = patch
		}
	}
	return all
}

// uncopiedNames returns the labels and annotations that have changed. Labels and annotations under our prefix stay on
// the hub anyway.
func uncopiedNames(old, job *trainer.TrainJob) (changed []string) {
	metadata := field.NewPath("metadata")
	add := func(kind string, was, has map[string]string) {
		for name := range union(was, has) {
			if was[name] != has[name] && !strings.HasPrefix(name, v1alpha1.KeyPrefix) && name != corev1.LastAppliedConfigAnnotation {
				changed = append(changed, metadata.Child(kind).Key(name).String())
			}
		}
	}
	add("labels", old.Labels, job.Labels)
	add("annotations", old.Annotations, job.Annotations)
	slices.Sort(changed)
	return changed
}

func union(a, b map[string]string) map[string]bool {
	names := map[string]bool{}
	for name := range a {
		names[name] = true
	}
	for name := range b {
		names[name] = true
	}
	return names
}

func listWarned(names []string) string {
	if more := len(names) - mostNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNames], ", "), more)
	}
	return strings.Join(names, ", ")
}
