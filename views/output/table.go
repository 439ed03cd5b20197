// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// None and Unknown are cells without a value, as in kubectl.
const (
	None    = "<none>"
	Unknown = "<unknown>"
)

// Column is a column of a table. A wide column is printed only with -o wide.
type Column struct {
	Name string
	Wide bool
}

// NewTable returns a table without rows.
func NewTable(columns ...Column) *metav1.Table {
	table := &metav1.Table{}
	for _, column := range columns {
		definition := metav1.TableColumnDefinition{Name: column.Name, Type: "string"}
		if column.Wide {
			definition.Priority = 1
		}
		table.ColumnDefinitions = append(table.ColumnDefinitions, definition)
	}
	return table
}

// Add adds a row, with a cell for each column.
func Add(table *metav1.Table, cells ...any) {
	table.Rows = append(table.Rows, metav1.TableRow{Cells: cells})
}

// Age returns for people how long ago a time is.
func Age(since metav1.Time, now time.Time) string {
	if since.IsZero() {
		return Unknown
	}
	return duration.HumanDuration(now.Sub(since.Time))
}

// Or returns text, or empty if text is "".
func Or(text, empty string) string {
	if text == "" {
		return empty
	}
	return text
}
