// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

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

// Escaped returns a writer to a terminal that shows control characters instead of sending them. Words of workers and
// users are in what the plugin prints. With control characters they could move the cursor, overwrite lines or set the
// title of the window. Line breaks and tabs pass.
func Escaped(to io.Writer) io.Writer { return &escaper{to: to} }

type escaper struct {
	to io.Writer
	mu sync.Mutex
	// begun are the bytes of a letter that has not ended yet. Under mu.
	begun []byte
}

// Write writes everything but a letter that has not ended yet.
func (e *escaper) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	text := slices.Concat(e.begun, p)
	e.begun = nil
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		if !utf8.FullRune(text) {
			e.begun = slices.Clone(text)
			break
		}
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1: // An old terminal could take the byte for a control character.
			out = fmt.Appendf(out, `\x%02x`, text[0])
		case r == '\n' || r == '\t':
			out = append(out, byte(r))
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, text[:size]...)
		}
		text = text[size:]
	}
	if _, err := e.to.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}
