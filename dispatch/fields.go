// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trainyard/trainyard/api/trainjobs/fields"
)

// unknownOfJob returns the fields of the job that the worker's TrainJobs do not have.
func (f *filters) unknownOfJob(w *Worker) []string {
	return common(f.job.Fields, w.Trainer.Missing)
}

// unknownOfRuntime returns the fields of the job's runtime that the worker's runtimes do not have, none if the worker has a
// runtime of its own.
func (f *filters) unknownOfRuntime(w *Worker) []string {
	if w.HasRuntime == nil {
		return nil
	}
	runtime := &f.job.Runtime
	unknown := common(runtime.Fields, w.Trainer.MissingOfRuntimes)
	if len(unknown) > 0 && w.HasRuntime(runtime.Kind, runtime.Key) {
		return nil
	}
	return unknown
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
	if unknown := f.unknownOfJob(w); len(unknown) > 0 {
		faults = append(faults, "its TrainJobs do not have "+inSpec(unknown))
	}
	if unknown := f.unknownOfRuntime(w); len(unknown) > 0 {
		faults = append(faults, fmt.Sprintf("%s %q uses %s, which its runtimes do not have",
			f.job.Runtime.Kind, f.job.Runtime.Key.Name, inSpec(unknown)))
	}
	return strings.Join(faults, "; ") + instead(w)
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
	var has []string
	for _, field := range fields.Overrides() {
		if slices.Contains(w.Trainer.Fields, field) {
			has = append(has, "spec."+field)
		}
	}
	switch {
	case w.Trainer.Release == "":
		return ""
	case len(has) == 0:
		return fmt.Sprintf(" (Kubeflow Trainer %s)", w.Trainer.Release)
	}
	return fmt.Sprintf(" (Kubeflow Trainer %s, with %s)", w.Trainer.Release, strings.Join(has, ", "))
}
