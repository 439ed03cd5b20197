// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/trainyard/trainyard/test/simulation/internal/stream"
)

// The formats.
const (
	Philly = "philly"
	PAI    = "pai"
	OpenB  = "openb"
)

// Formats returns all of them.
func Formats() []string { return []string{Philly, PAI, OpenB} }

// Trace is recorded jobs.
type Trace struct {
	// Jobs in the order of their submission. The first is submitted at 0.
	Jobs []stream.Job
	// Omitted is how many have been left out, by why.
	Omitted map[string]int
}

// LeftOut says how many jobs have been left out, and why.
func (t *Trace) LeftOut() string {
	var items []string
	for _, why := range slices.Sorted(maps.Keys(t.Omitted)) {
		items = append(items, fmt.Sprintf("%d %s", t.Omitted[why], why))
	}
	return cmp.Or(strings.Join(items, ", "), "none")
}

func (t *Trace) omit(why string) {
	if t.Omitted == nil {
		t.Omitted = map[string]int{}
	}
	t.Omitted[why]++
}

// begin sorts the jobs, and lets the first be submitted at 0.
func (t *Trace) begin() {
	stream.Sort(t.Jobs)
	if len(t.Jobs) == 0 {
		return
	}
	first := t.Jobs[0].Submitted
	for i := range t.Jobs {
		t.Jobs[i].Submitted -= first
	}
}

// Read reads a file. The table of jobs is for PAI, and may be empty. Its error is about the first fault.
func Read(format, file, jobTable string) (*Trace, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	switch format {
	case Philly:
		return ReadPhilly(file, in)
	case OpenB:
		return ReadOpenB(file, in)
	case PAI:
		if jobTable == "" {
			return ReadPAI(file, in, nil)
		}
		table, err := os.Open(jobTable)
		if err != nil {
			return nil, err
		}
		defer func() { _ = table.Close() }()
		submissions, err := ReadPAIJobs(jobTable, table)
		if err != nil {
			return nil, err
		}
		return ReadPAI(file, in, submissions)
	}
	return nil, fmt.Errorf("trace format %q is not one of %s", format, strings.Join(Formats(), ", "))
}
