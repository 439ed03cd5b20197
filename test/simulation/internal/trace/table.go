// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

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
