// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import "strings"

// messageLimit is the largest size of a message in a condition, an explanation or the history, in bytes.
const messageLimit = 1024

// NoteLimit is the largest size of an Event's note, in bytes.
const NoteLimit = 1024

// Message shortens a message to what a condition takes. So all controllers cut a message in the same way.
func Message(words string) string { return Shorten(words, messageLimit) }

// Shorten removes the white space around a text that comes from elsewhere, and cuts the text to a number of bytes.
func Shorten(words string, limit int) string { return Cut(strings.TrimSpace(words), limit) }

// Cut cuts a text to a number of bytes. Three of these are dots that show the cut. It cuts no letter in half.
func Cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-3], "") + "..."
}
