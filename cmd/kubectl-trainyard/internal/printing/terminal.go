// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package printing

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"unicode"
	"unicode/utf8"
)

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
