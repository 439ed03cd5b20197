// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package trace makes the trace of a TrainJob from the hub's records: a tree of spans. It does no I/O.
//
//	tree := trace.Of(job, dispatch)
//	for _, span := range tree.Closed(before) { ... } // What has ended since.
//
// The root is the TrainJob. Below it is a span for each attempt, and below each attempt are its steps: waiting, placed,
// starting, running, and evicting while the record says so. Package timeline says when they were.
//
// Nothing is stored for a trace. The ID of the trace is the UID of the TrainJob, and the ID of a span follows from the
// UID, the number of the attempt and the name of the span. So two managers, the agent of the worker and the kubectl plugin
// give one span the same ID.
package trace
