// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/accelerators"
	"github.com/trainyard/trainyard/dispatch/record"
)

// waitingReasons is the table of the reasons for which a job waits.
func waitingReasons() (string, error) {
	meaning, err := comments("api/v1alpha1")
	rows := [][]string{{"reason", "kind", "meaning", "what to do"}}
	for _, reason := range v1alpha1.PlacedReasons() {
		if reason.Kind != v1alpha1.ReasonKindNone {
			rows = append(rows, []string{code(reason.Reason), string(reason.Kind), meaning["Reason"+reason.Reason], reason.Advice})
		}
	}
	return table(rows), err
}

// reasonKinds is the table of the kinds of these reasons.
func reasonKinds() (string, error) {
	meaning, err := comments("api/v1alpha1")
	rows := [][]string{{"kind", "meaning", "position in the waiting list", "Event"}}
	for _, reason := range v1alpha1.PlacedReasons() {
		kind := string(reason.Kind)
		known := slices.ContainsFunc(rows, func(row []string) bool { return row[0] == kind })
		if !known && reason.Kind != v1alpha1.ReasonKindNone {
			rows = append(rows, []string{
				kind, meaning["ReasonKind"+kind], choose(reason.Kind.IsForRoom(), "yes", "no"),
				choose(reason.Kind.NeedsRepair(), "Warning", "Normal"),
			})
		}
	}
	return table(rows), err
}

// objections is the table of the reasons for which a worker does not take a job.
func objections() (string, error) {
	meaning, err := comments("api/v1alpha1")
	rows := [][]string{{"reason", "meaning", "what helps"}}
	help := map[dispatch.Remedy]string{
		dispatch.Waiting: "other jobs end, nodes are added, or time passes", dispatch.ChangedPin: "another annotation of the job",
		dispatch.ChangedPolicy: "another policy", dispatch.ChangedWorker: "a change of the worker",
	}
	for _, reason := range dispatch.Objections() {
		if err == nil && meaning["Reason"+reason] == "" {
			err = fmt.Errorf("api/v1alpha1 has no comment about reason %s", reason)
		}
		rows = append(rows, []string{code(reason), meaning["Reason"+reason], help[dispatch.RemedyOf(reason)]})
	}
	return table(rows), err
}

// outcomes is the table of the outcomes of attempts.
func outcomes() (string, error) {
	meaning, err := comments("api/v1alpha1")
	rows := [][]string{{"outcome", "meaning", "eviction asked for by", "refusal"}}
	for _, ending := range record.Endings() {
		refusal := choose(ending.Refusal, "yes", "no")
		if ending.Pardoned {
			refusal = "from the second time on"
		}
		rows = append(rows, []string{
			code(string(ending.Outcome)), meaning["Outcome"+string(ending.Outcome)], code(string(ending.Evictor)), refusal,
		})
	}
	return table(rows), err
}

// states is the table of the states of a Dispatch, each with the states that may follow and who writes them.
func states() (string, error) {
	meaning, err := comments("dispatch/record")
	rows := [][]string{{"state", "meaning", "what may follow, and who writes it"}}
	for _, state := range record.States() {
		var follow []string
		for _, to := range state.Next() {
			var writers []string
			for _, transition := range record.Between(state, to) {
				if !slices.Contains(writers, string(transition.Writer)) {
					writers = append(writers, string(transition.Writer))
				}
			}
			follow = append(follow, fmt.Sprintf("%s (%s)", to, strings.Join(writers, ", ")))
		}
		rows = append(rows, []string{state.String(), meaning[state.String()], strings.Join(follow, ", ")})
	}
	return table(rows), err
}

func choose(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

// code marks a name as code. An empty name stays empty.
func code(name string) string {
	if name == "" {
		return ""
	}
	return "`" + name + "`"
}

func scores() (string, error) {
	rows := [][]string{{"name", "score", "use it to"}}
	for _, score := range dispatch.Scores {
		rows = append(rows, []string{fmt.Sprintf("`%s`", score.Name), score.Counts, score.Use})
	}
	return table(rows), nil
}

// acceleratorRows is the table of the resources that are known to be accelerators.
func acceleratorRows() (string, error) {
	rows := [][]string{{"resource", "vendor", "unit", "label of nodes that names the product"}}
	for _, row := range accelerators.Rows() {
		label := ""
		if row.Label != "" {
			label = code(row.Label)
		}
		if row.Same != "" {
			label += "; not counted beside " + code(string(row.Same))
		}
		rows = append(rows, []string{code(row.Name), row.Vendor, string(row.Unit), label})
	}
	return table(rows), nil
}
