// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trainyard/trainyard/api/trainjobs/translate"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// unknownOfJob returns the fields of the job that the worker's TrainJobs do not have, not even in another form if the
// policy allows that.
func (f *filters) unknownOfJob(w *Worker) []string {
	if len(f.job.Fields) == 0 {
		return nil
	}
	unknown := common(f.job.Fields, w.Trainer.Missing)
	if f.policy.Rules().Skew == v1alpha1.SkewTranslate && translate.Into(w.Trainer.Fields) != "" {
		unknown = slices.DeleteFunc(unknown, func(field string) bool { return field == translate.Patches })
		unknown = append(unknown, common(f.job.Fields, w.Trainer.Untranslatable)...)
		slices.Sort(unknown)
		unknown = slices.Compact(unknown)
	}
	return unknown
}

// TranslatedInto returns the field into which the runtimePatches of a job's copy are translated for a worker. Empty: the
// copy is not translated, because the policy of the job does not allow it, or because it has nothing to translate.
func TranslatedInto(job *Job, policy *v1alpha1.DispatchPolicy, worker *v1alpha1.TrainerAPI) v1alpha1.PatchesField {
	if worker == nil || !slices.Contains(job.Fields, translate.Patches) || !slices.Contains(worker.Missing, translate.Patches) ||
		policy.Rules().Skew != v1alpha1.SkewTranslate {
		return ""
	}
	return translate.Into(worker.Fields)
}

// translationNote says that the copy on the worker is translated.
func (f *filters) translationNote(w *Worker) string {
	if f.policy == nil {
		return ""
	}
	into := TranslatedInto(&f.job, f.policy.DispatchPolicy, &w.Trainer)
	if into == "" {
		return ""
	}
	return fmt.Sprintf("; the copy says in spec.%s what the job says in spec.%s, which the worker does not have%s", into, translate.Patches, release(w))
}

// unknownOfRuntime returns the fields of the job's runtime that the worker's runtimes do not have, none if the worker has a
// runtime of its own, and the job does not pin the hub's. A status does not say which runtimes are the worker's own.
func (f *filters) unknownOfRuntime(w *Worker) []string {
	if w.Runtimes == nil || w.Runtimes.reported {
		return nil
	}
	if onWorker, _ := w.Runtimes.Of(f.job.Runtime.Key); onWorker.Foreign && !f.job.PinsRuntime {
		return nil
	}
	return common(f.job.Runtime.Fields, w.Trainer.MissingOfRuntimes)
}

// common returns what is in both of two lists, which are short.
func common(a, b []string) (both []string) {
	for _, field := range a {
		if slices.Contains(b, field) {
			both = append(both, field)
		}
	}
	return both
}

// unknownFields says which fields the worker does not know, and what it has instead.
func (f *filters) unknownFields(w *Worker) string {
	var faults []string
	unknown := f.unknownOfJob(w)
	if len(unknown) > 0 {
		faults = append(faults, "its TrainJobs do not have "+inSpec(unknown))
	}
	if unknown := f.unknownOfRuntime(w); len(unknown) > 0 {
		faults = append(faults, fmt.Sprintf("%s %q uses %s, which its runtimes do not have",
			f.job.Runtime.Kind, f.job.Runtime.Key.Name, inSpec(unknown)))
	}
	message := strings.Join(faults, "; ") + instead(w)
	helps := translate.Into(w.Trainer.Fields) != "" && len(common(f.job.Fields, w.Trainer.Untranslatable)) == 0
	if helps && len(faults) == 1 && slices.Equal(unknown, []string{translate.Patches}) {
		message += "; a DispatchPolicy with skew: Translate lets the copy say it with that"
	}
	return message
}

// inSpec lists fields of a spec.
func inSpec(paths []string) string {
	whole := make([]string, len(paths))
	for i, path := range paths {
		whole[i] = "spec." + path
	}
	return list(whole, ", ")
}

// instead says which release the worker has, and which field of it does what runtimePatches do.
func instead(w *Worker) string {
	if into := translate.Into(w.Trainer.Fields); into != "" && w.Trainer.Release != "" {
		return fmt.Sprintf(" (Kubeflow Trainer %s, with spec.%s)", w.Trainer.Release, into)
	}
	return release(w)
}

// release says which release the worker has.
func release(w *Worker) string {
	if w.Trainer.Release == "" {
		return ""
	}
	return fmt.Sprintf(" (Kubeflow Trainer %s)", w.Trainer.Release)
}
