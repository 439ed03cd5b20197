// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// waitingReasons is the table of the reasons for which a job waits.
func waitingReasons() (string, error) {
	meaning, err := comments("api/v1alpha1")
	rows := [][]string{{"reason", "kind", "meaning", "what to do"}}
	for _, reason := range v1alpha1.PlacedReasons() {
		if reason.Obstacle != v1alpha1.ObstacleNone {
			rows = append(rows, []string{code(reason.Reason), string(reason.Obstacle), meaning["Reason"+reason.Reason], reason.Advice})
		}
	}
	return table(rows), err
}

// obstacles is the table of their kinds.
func obstacles() (string, error) {
	meaning, err := comments("api/v1alpha1")
	rows := [][]string{{"kind", "meaning", "position in the waiting list", "Event"}}
	for _, reason := range v1alpha1.PlacedReasons() {
		kind := string(reason.Obstacle)
		known := slices.ContainsFunc(rows, func(row []string) bool { return row[0] == kind })
		if !known && reason.Obstacle != v1alpha1.ObstacleNone {
			rows = append(rows, []string{
				kind, meaning["Obstacle"+kind], choose(reason.Obstacle.IsForRoom(), "yes", "no"),
				choose(reason.Obstacle.NeedsRepair(), "Warning", "Normal"),
			})
		}
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
