// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package record reads and edits the record of a job, its Dispatch: in which state the record is (StateOf), what may
// follow (Transitions), and what each event changes in the status or the spec. A controller begins with a switch over
// StateOf. Package internal/records writes what is edited here.
//
// Several controllers write a Dispatch, each with an optimistic lock and from what it has read. So the state is no
// field that somebody could forget to set: it is computed from the record, and every transition is one write. What a
// crash or another leader leaves behind is a state too, and the next writer goes on from there.
//
// A job that nothing disturbs goes from None to Placed, Copied and Finished. An attempt that is over before goes to
// Ended, and the job from there to Waiting or to the next Placed. docs/design.md has all states with what may follow.
//
// A job changes its worker in Ended only. The exception is a job whose later attempt is found after the hub was
// restored from a backup. The states of mirror refine these states: mirror also looks at the TrainJob and the copy.
//
// Transitions is the table of all writes: who makes them, and what makes them safe. Package test/laws checks writes
// against it. Endings is the table of outcomes of attempts.
//
// The functions have no clock: the caller gives the time that a condition gets.
package record
