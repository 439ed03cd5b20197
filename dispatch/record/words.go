// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import "strings"

// messageLimit is how many bytes a condition, an explanation and an entry of the history take.
const messageLimit = 1024

// NoteLimit is how many bytes an Event's note takes.
const NoteLimit = 1024

// Message is what a condition says of a message: all controllers cut it in the same way.
func Message(words string) string { return Shorten(words, messageLimit) }

// Shorten cuts the words of somebody else to what a field takes, in bytes, without the white space around them.
func Shorten(words string, limit int) string { return Cut(strings.TrimSpace(words), limit) }

// Cut cuts a text to a number of bytes, of which three are for the dots that show it. No letter is cut in half.
func Cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-3], "") + "..."
}
