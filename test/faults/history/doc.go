// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package history writes down what really happens on a hub and its workers, whatever the product says of it, and finds what must not.
//
// A Recorder watches all API servers directly, with a connection of its own that no fault of the network concerns. Where an API server is
// away it goes on from the last version that it has seen, so that it misses nothing, and only the time of what it learns late is
// uncertain: an interval then begins as early and ends as late as it can have.
//
// An Interval is a time in which a copy of a TrainJob could run: it existed, neither suspended nor ended, or had a pod that was neither
// Succeeded nor Failed. Two of one TrainJob must not overlap. As watches of two workers are never equally fast, an overlap is proven
// before it counts: when a copy begins while another one is open, the other's worker is asked at once. If the other one can run after
// that answer was asked for, they overlap. A worker that cannot be asked counts as if nothing had changed there.
//
// Of the hub's Dispatches and TrainJobs every version is written down. No two that follow each other may be what the state machine
// does not know, and nothing is written when a job has ended.
package history
