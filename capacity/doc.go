// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package capacity counts what the nodes of one worker have, and what its pods use.
//
// The result is an Inventory, of which there are two. A Tally counts nodes and pods; the hub then holds both, stripped by StripNode and
// StripPod. A Reported reads the CapacityReport of a worker, for which a Tally on the worker has counted (NewReport). In a report, nodes
// that are alike are one NodeState with a Count.
//
//	tally := capacity.NewTally()
//	nodes.AddEventHandler(tally.NodeHandler())
//	pods.AddEventHandler(tally.PodHandler())
//	cancel := tally.Subscribe(changed) // then, in another goroutine: tally.Snapshot()
//
// # What to watch out for
//
//   - Snapshots and their nodes are shared. Nobody may write to them.
//   - A report is stale when nobody has renewed it for a while, by the clock of the reading process. The time in the report does not
//     count. A process that has just begun believes the report that it finds until then.
//   - Pods that have succeeded no longer count when they are deleted.
//
// # Locks
//
// Tally.mu guards the counts, Reported.mu the last report, audience.mu the subscribers. Nobody is called back under a lock.
package capacity
