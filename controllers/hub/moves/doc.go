// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package moves has jobs leave workers on which they are not to stay, or do not get on: it writes spec.eviction to their Dispatches, and
// nothing else. mirror carries the eviction out, and placement finds the job another worker.
//
// A worker with spec.drain is emptied, each job as soon as another worker has room for it, as many at a time as their policies let
// (maxConcurrentMoves). A job that fits nowhere else stays, and its Dispatch says what it lacks: Evicting=False, NoRoomElsewhere. A job
// that its worker has not let run for its policy's admissionTimeout leaves too, if another worker has room.
//
// Its keys are WorkerClusters. Reconcile observes the worker's live jobs from the hub's caches, decides what is to be done about each
// (state.go), and does it in the order in which the jobs would stand in line. The caches need the
// indexes of package records. Whether there is room elsewhere says placement (Room), and keeps it until the job comes.
//
// Nothing polls: a key comes when its worker, a Dispatch of it or a policy changes, when a move is over, when placement says that there
// may be room, and when a job's time is over.
//
// In memory, of one Reconcile at a time: since when jobs have not been let run, evictions that the cache does not show yet, and what was
// last said of jobs that stay. Under a lock: which workers there is something to do about.
package moves
