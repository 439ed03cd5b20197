// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lifecycle is the state machine of a Dispatch: in which state its record is (StateOf), which writes lead from one state to
// another and who makes them (Transitions), and whether a write that was seen is one of these (Check).
//
// Several controllers write a Dispatch, each with an optimistic lock and each from what it has read. So the state is not a field that
// somebody could forget to set: it is computed from what the record says, and every transition is one write. Whatever a crash or another
// leader leaves behind is a state of the table, and the writer of the next transition goes on from there.
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
// A job changes its worker in Ended only, but for one whose later attempt is found after the hub was restored from a backup. mirror's
// states (what is to be done about a key, given also the TrainJob and the copy) refine these: see its doc.go.
package lifecycle
