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

// table reads CSV line by line.
type table struct {
	file    string
	csv     *csv.Reader
	columns []string
	line    []string
	faults  faults
	// again: the first line was no names, and is to be read again.
	again bool
	// valid: nothing was wrong with this line so far.
	valid bool
}

// newTable begins a file that has the columns: in any order if its first line has their names, otherwise in the given
// order.
func newTable(file string, in io.Reader, columns []string) (*table, error) {
	t := &table{file: file, csv: csv.NewReader(in), columns: columns}
	t.csv.FieldsPerRecord = -1 // Judged here, so that the fault says more.
	t.csv.ReuseRecord = true
	first, err := t.csv.Read()
	if errors.Is(err, io.EOF) {
		return nil, &Fault{File: file, Line: 1, Column: 1, Want: "the columns " + strings.Join(columns, ",")}
	}
	if err != nil {
		return nil, t.syntax(err)
	}
	if !slices.Contains(first, columns[0]) {
		t.line, t.again = first, true
		return t, nil
	}
	t.columns = slices.Clone(first)
	for _, column := range columns {
		if !slices.Contains(first, column) {
			return nil, &Fault{File: file, Line: 1, Column: 1, Value: strings.Join(first, ","),
				Want: fmt.Sprintf("the columns %s; there is no %s", strings.Join(columns, ","), column)}
		}
	}
	return t, nil
}

// next goes to the next line that has all columns. It returns false after the last.
func (t *table) next() bool {
	for {
		if !t.again {
			line, err := t.csv.Read()
			if errors.Is(err, io.EOF) {
				return false
			}
			if err != nil {
				t.faults.add(t.syntax(err))
				return false
			}
			t.line = line
		}
		t.again, t.valid = false, true
		if len(t.line) == len(t.columns) {
			return true
		}
		row, column := t.csv.FieldPos(0)
		t.faults.add(&Fault{File: t.file, Line: row, Column: column, Value: strings.Join(t.line, ","),
			Want: fmt.Sprintf("%d columns, %s; there are %d", len(t.columns), strings.Join(t.columns, ","), len(t.line))})
	}
}

// syntax turns an error of package csv into one that names the file.
func (t *table) syntax(err error) error {
	var parse *csv.ParseError
	if errors.As(err, &parse) {
		return fmt.Errorf("%s:%d:%d: %w", t.file, parse.Line, parse.Column, parse.Err)
	}
	return fmt.Errorf("%s: %w", t.file, err)
}

// text is a field of the line. It is a copy.
func (t *table) text(column string) string {
	return strings.Clone(strings.TrimSpace(t.line[slices.Index(t.columns, column)]))
}

// number is a field with a number of at least 0. An empty field is absent.
func (t *table) number(column, want string) (n float64, present bool) {
	text := t.text(column)
	if text == "" {
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n < 0 || math.IsNaN(n) || n > math.MaxInt32 {
		t.fault(column, want)
		return 0, false
	}
	return n, true
}

// required is a number that may not be absent.
func (t *table) required(column, want string) float64 {
	n, present := t.number(column, want)
	if !present && t.valid {
		t.fault(column, want)
	}
	return n
}

func (t *table) fault(column, want string) {
	row, at := t.csv.FieldPos(slices.Index(t.columns, column))
	t.faults.add(&Fault{File: t.file, Line: row, Column: at, Field: column, Value: t.text(column), Want: want})
	t.valid = false
}

// seconds as a duration.
func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// The words of several tables.
const (
	wantTime  = "a time in seconds such as 1739162.0, or empty"
	wantCount = "a whole number of at least 1"
)
