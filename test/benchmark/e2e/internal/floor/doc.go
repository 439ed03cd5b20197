// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package floor is the least that any dispatcher must do, as fast as a plain client does it: for each job a record of
// where it goes, a copy there, and the copy's end written to the hub. It has no cache, no queue, no rate limit and no
// capacity; it takes the workers in turn, and remembers nothing. Nobody could use it as a dispatcher: one failed
// request ends the run.
package floor
