// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package explorer

import (
	"context"
	"regexp"
	"slices"
	"strings"
)

// Shrink drops actions that do not matter for what is wrong in a sequence. It leaves out parts, large parts first, and
// keeps the rest if that fails in the same way. It uses at most this many replays.
func Shrink(ctx context.Context, c Course, replays int) Course {
	for size := len(c.Actions) / 2; size > 0 && replays > 0; size /= 2 {
		for at := 0; at < len(c.Actions) && replays > 0; replays-- {
			rest := slices.Concat(c.Actions[:at], c.Actions[min(at+size, len(c.Actions)):])
			if shorter := Replay(ctx, c.Plan, rest, nil); alike(shorter.Violation, c.Violation) && len(shorter.Actions) < len(c.Actions) {
				c = shorter
			} else {
				at += size
			}
		}
	}
	return c
}

// numbers are what differs between two descriptions of the same thing: numbers, workers, managers and jobs.
var numbers = regexp.MustCompile(`[0-9]+|"?\bw[0-9]"?|\bm[0-9]\b|\b[abc]\b`)

// alike: two courses go wrong in the same way.
func alike(a, b string) bool {
	return a != "" && b != "" && firstLine(a) == firstLine(b)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	line, _, _ = strings.Cut(line, ";")
	line, _, _ = strings.Cut(line, "(")
	return numbers.ReplaceAllString(line, "N")
}

// Story describes a sequence in words. If it is long, Story first leaves out the leases, which are renewed all the
// time, and then the middle.
func Story(ctx context.Context, c Course) string {
	var lines []string
	Replay(ctx, c.Plan, c.Actions, func(line string) { lines = append(lines, line) })
	const most = 400
	if len(lines) > most {
		lines = slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, " ExecutionLease ") })
	}
	if len(lines) > most {
		lines = slices.Concat(lines[:most/4], []string{"..."}, lines[len(lines)-3*most/4:])
	}
	return strings.Join(lines, "\n")
}
