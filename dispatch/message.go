// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"strings"

	"github.com/trainyard/trainyard/dispatch/record"
)

// maxMessage is the number of bytes to which messages are cut, so that the API server accepts them.
const maxMessage = 1024

// maxListed is the number of items that a list in a message names. It counts the others.
const maxListed = 3

// list joins items. It only counts those beyond maxListed.
func list(items []string, separator string) string {
	if len(items) <= maxListed {
		return strings.Join(items, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(items[:maxListed], separator), len(items)-maxListed)
}

// Cut shortens a message to 1024 bytes, the limit of a condition or an explanation.
func Cut(message string) string { return record.Cut(message, maxMessage) }

func plural(noun string, count int64) string {
	if count == 1 {
		return noun
	}
	return noun + "s"
}
