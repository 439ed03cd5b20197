// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package moves evicts jobs from workers on which they are not to stay, or which do not let them run. It writes
// spec.eviction to their Dispatches, and the condition Evicting. mirror carries an eviction out, and placement finds
// another worker for the job.
//
// A worker with spec.drain loses each job as soon as another worker has room for it. Policies limit how many jobs move
// at a time (maxConcurrentMoves). A job that fits nowhere else stays, and its Dispatch says what it lacks:
// Evicting=False, NoRoomElsewhere. If a worker does not let a job run for the admissionTimeout of the job's policy, the
// job leaves too, if another worker has room.
//
// Keys are WorkerClusters. Reconcile reads the worker's live jobs from the hub's caches, decides what to do about each
// job (state.go), and does it in the order of the waiting list. The caches need the indexes of package records.
// Placement says whether there is room elsewhere, and keeps it until the job comes (Room).
//
// Nothing is polled. A key comes when its worker, one of its Dispatches or a policy changes, when a move ends, when
// placement says that there may be room, and when a job's time is over.
//
// One Reconcile at a time uses what the controller remembers: since when jobs have not been let run, the evictions that
// the cache does not show yet, and the last messages about jobs that stay. The lock guards for which workers events
// elsewhere matter.
package moves
