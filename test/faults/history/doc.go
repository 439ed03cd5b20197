// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package history records what really happens on a hub and its workers, independent of the product, and finds what must
// not happen.
//
// A Recorder watches all API servers directly, with connections that no network fault hits. After an API server was
// away, the Recorder continues from the last version that it has seen. It does not know the exact time of what it learns
// late. Then an interval begins as early, and ends as late, as is possible.
//
// An API server that was started again may not have the events since that version any more: it has only those since its
// own start. This is a gap. The Recorder then lists everything. On the hub it also lists each object as it was just
// before its last version, and so on, until it knows all versions in the gap. Where etcd has compacted them, or the
// object is gone, the Recorder has no verdict about what happened in the gap, and Describe says where the gap is.
//
// An Interval is a time in which a copy of a TrainJob could run: the copy existed and was neither suspended nor ended,
// or it had a pod that was neither Succeeded nor Failed. Two intervals of one TrainJob must not overlap. The watches of
// two workers are never equally fast, so the Recorder proves an overlap before it counts. When a copy begins while
// another copy is open, the Recorder asks the worker of the open copy at once. The two overlap if the open copy can
// still run after that request was sent. If that worker cannot be asked, its copy counts as unchanged.
//
// The Recorder keeps every version of the hub's Dispatches and TrainJobs. Each version must be a permitted successor of
// the version before it (test/laws), and nothing may be written when a job has ended.
package history
