// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package moves evicts jobs that must leave their worker, or that the worker does not let run: it writes spec.eviction
// and the condition Evicting to their Dispatches. mirror carries out an eviction, and placement places the job again.
//
// A worker with spec.drain loses each job as soon as another worker has room for it. Policies limit how many jobs move
// at a time (maxConcurrentMoves). A job that fits nowhere else stays, and its Dispatch says what it lacks:
// Evicting=False, NoRoomElsewhere. A job that may not run for its policy's admissionTimeout leaves too, given room.
//
// Keys are WorkerClusters. Reconcile reads the worker's live jobs from the hub's caches, decides what to do about each
// job (state.go), and does it by priority, then by age. The caches need the indexes of package records.
// Placement says whether there is room elsewhere, and keeps it until the job comes (Room).
//
// Nothing is polled. A key comes when its worker, one of its Dispatches or a policy changes, when a move ends, when
// placement says that there may be room, and when a job's time is over.
//
// One Reconcile at a time uses what the controller remembers: since when jobs may not run, the evictions that the cache
// lacks, and the last messages about jobs that stay. The lock guards for which workers events elsewhere matter.
package moves
