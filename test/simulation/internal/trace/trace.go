// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

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

// table reads CSV line by line, up to the first fault.
type table struct {
	file    string
	csv     *csv.Reader
	columns []string
	line    []string
	// again: the first line was no names, and is to be read again.
	again bool
	err   error
}

// newTable begins a file that has the columns: in any order if its first line has their names, otherwise in the given
// order.
func newTable(file string, in io.Reader, columns []string) (*table, error) {
	t := &table{file: file, csv: csv.NewReader(in), columns: columns}
	first, err := t.csv.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: read the first line: %w", file, err)
	}
	if !slices.Contains(first, columns[0]) {
		t.csv.FieldsPerRecord, t.line, t.again = len(columns), first, true
		if len(first) != len(columns) {
			t.err = fmt.Errorf("%s: want the columns %s", file, strings.Join(columns, ","))
		}
		return t, t.err
	}
	t.columns = first
	for _, column := range columns {
		if !slices.Contains(first, column) {
			return nil, fmt.Errorf("%s: there is no column %s", file, column)
		}
	}
	return t, nil
}

// next goes to the next line. It returns false after the last, and after a fault.
func (t *table) next() bool {
	if t.err != nil {
		return false
	}
	if t.again {
		t.again = false
		return true
	}
	line, err := t.csv.Read()
	if err != nil && !errors.Is(err, io.EOF) {
		t.err = fmt.Errorf("%s: %w", t.file, err)
	}
	t.line = line
	return err == nil
}

func (t *table) text(column string) string {
	return strings.TrimSpace(t.line[slices.Index(t.columns, column)])
}

// number is a field with a number of at least 0. An empty field is absent.
func (t *table) number(column string) (n float64, present bool) {
	text := t.text(column)
	if text == "" {
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0 && n <= math.MaxInt32) {
		t.fault(column, "a number of at least 0, or empty")
		return 0, false
	}
	return n, true
}

// whole is a field with a whole number, which may not be absent.
func (t *table) whole(column string, least int) int {
	n, present := t.number(column)
	if !present || n < float64(least) || n != math.Trunc(n) {
		t.fault(column, fmt.Sprintf("a whole number of at least %d", least))
	}
	return int(n)
}

func (t *table) fault(column, want string) {
	if t.err == nil {
		row, _ := t.csv.FieldPos(slices.Index(t.columns, column))
		t.err = fmt.Errorf("%s:%d: %s is %q: want %s", t.file, row, column, t.text(column), want)
	}
}

// seconds as a duration.
func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
