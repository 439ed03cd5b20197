// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package record reads and edits the record of a job, its Dispatch: in which state the record is (StateOf), what may
// follow (State.Next), and what each event changes in the status or the spec. A controller begins with a switch over
// StateOf. Package internal/records writes what is edited here.
//
// Several controllers write a Dispatch, each with an optimistic lock and from what it has read. So the state is no
// field that somebody could forget to set: it is computed from the record, and every transition is one write. What a
// crash or another leader leaves behind is a state too, and the next writer goes on from there.
//
//	                      +--------------- taken back ---------------+
//	                      v                                          |
//	None --> Waiting --> Placed --> Copied ------------------> Evicting
//	            ^         |  ^         |                          |
//	            |         |  |         +--> Lost (from any of the three, and back)
//	            |         v  |         v                          v
//	            +------- Ended <-------+--------------------------+
//
//	Placed, Copied, Evicting, Ended --> Finished        any --> Leaving --> None
//
// A job changes its worker in Ended only. The exception is a job whose later attempt is found after the hub was
// restored from a backup. The states of mirror refine these states: mirror also looks at the TrainJob and the copy.
//
// Package test/laws has the table of all writes: who makes them, and what makes them safe.
//
// The functions have no clock: the caller gives the time that a condition gets.
package record
