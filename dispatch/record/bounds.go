// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"slices"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// etcd takes 1.5 MiB. That includes the record of who owns which field, which is about as large again for lists with
// keys. So each list whose length and texts depend on workers gets a part of that. If few workers report, each message
// may have 1024 bytes. If many report, each message is shorter.
const (
	refusalBytes     = 128 << 10
	explanationBytes = 160 << 10
	nameLimit        = 253
	stepLimit        = 100
	// A message is not cut below fewestWords bytes.
	fewestWords = 32
)

// BoundStatus cuts a status to what the API server takes, whatever workers have said. It does not change what fits.
func BoundStatus(status *v1alpha1.DispatchStatus) {
	status.Explanation = BoundExplanation(status.Explanation)
	status.Refusals = boundRefusals(status.Refusals)
	status.Steps = boundSteps(status.Steps)
}

// BoundExplanation returns lines that a Dispatch has room for. It does not change its argument.
func BoundExplanation(lines []v1alpha1.ClusterExplanation) []v1alpha1.ClusterExplanation {
	lines = boundList(lines, explanationBytes, func(line *v1alpha1.ClusterExplanation) *string { return &line.Message })
	for len(lines) > 0 && !fitsIn(lines, explanationBytes) { // The names alone are too much.
		lines = lines[:len(lines)*3/4]
	}
	return lines
}

// boundRefusals cuts messages. If the names of the workers alone are too much, it drops the oldest refusals.
func boundRefusals(refusals []v1alpha1.Refusal) []v1alpha1.Refusal {
	refusals = boundList(refusals, refusalBytes, func(refusal *v1alpha1.Refusal) *string { return &refusal.Message })
	for len(refusals) > 0 && !fitsIn(refusals, refusalBytes) {
		byAge := slices.Clone(refusals)
		slices.SortStableFunc(byAge, func(a, b v1alpha1.Refusal) int { return a.Last.Compare(b.Last.Time) })
		oldest := map[v1alpha1.ClusterName]bool{}
		for _, refusal := range byAge[:(len(byAge)+3)/4] {
			oldest[refusal.Cluster] = true
		}
		refusals = slices.DeleteFunc(refusals, func(refusal v1alpha1.Refusal) bool { return oldest[refusal.Cluster] })
	}
	return refusals
}

// boundList cuts all messages to the same length until the list takes at most limit bytes. If that is not enough, it
// leaves the messages out.
func boundList[T any](list []T, limit int, message func(*T) *string) []T {
	if fitsIn(list, limit) {
		return list
	}
	list = slices.Clone(list)
	for words := messageLimit; words >= fewestWords; words = words * 3 / 4 {
		for i := range list {
			*message(&list[i]) = Shorten(*message(&list[i]), words)
		}
		if fitsIn(list, limit) {
			return list
		}
	}
	for i := range list {
		*message(&list[i]) = ""
	}
	return list
}

// surelyFits is a number of entries that never take more than the smallest limit, whatever they say. An entry has a
// name, some short fields, and a message of 1024 bytes. JSON may write each of these bytes as six bytes.
const surelyFits = 16

// fitsIn says whether a list takes no more than so many bytes in JSON.
func fitsIn[T any](list []T, limit int) bool {
	if len(list) <= surelyFits {
		return true
	}
	encoded, err := json.Marshal(list)
	return err == nil && len(encoded) <= limit
}

// boundSteps returns the first steps that the CRD takes. A worker chooses their names.
func boundSteps(steps []v1alpha1.Step) []v1alpha1.Step {
	known := map[string]bool{"": true}
	valid := func(step *v1alpha1.Step) bool {
		taken := known[step.Name] || len(step.Name) > nameLimit || len(known) > stepLimit
		known[step.Name] = true
		return !taken
	}
	for i := range steps {
		if !valid(&steps[i]) {
			rest := slices.Clone(steps[:i])
			for j := i + 1; j < len(steps); j++ {
				if valid(&steps[j]) {
					rest = append(rest, steps[j])
				}
			}
			return rest
		}
	}
	return steps
}

// BoundEntries returns the first entries that together take at most limit bytes, with a separator of one byte.
func BoundEntries(entries []string, limit int) []string {
	for i, entry := range entries {
		if limit -= len(entry) + 1; limit < 0 {
			return entries[:i]
		}
	}
	return entries
}
