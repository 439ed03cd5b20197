// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fencing

import "time"

// Deadline is when the pods of a hub's fenced copies must have ended, by the clock of this replica, if the hub is silent from now on.
func (f *Fencer) Deadline(id string) (deadline time.Time) {
	f.book.look(id, func(h *hub, _ time.Time) { deadline = h.agent.Deadline() })
	return deadline
}
