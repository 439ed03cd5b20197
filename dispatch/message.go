// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"strings"

	"github.com/trainyard/trainyard/dispatch/record"
)

// maxMessage is the number of bytes to which messages are cut, so that the API server takes them.
const maxMessage = 1024

// maxListed is how many items a list in a message has before the rest is only counted.
const maxListed = 3

// list joins items, and only counts those that are too many.
func list(items []string, separator string) string {
	if len(items) <= maxListed {
		return strings.Join(items, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(items[:maxListed], separator), len(items)-maxListed)
}

// Cut shortens a message to what a condition or an explanation takes, 1024 bytes.
func Cut(message string) string { return record.Cut(message, maxMessage) }

func plural(noun string, count int64) string {
	if count == 1 {
		return noun
	}
	return noun + "s"
}
