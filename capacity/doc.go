// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package capacity counts what the nodes of one worker have, and what its pods use.
//
// The result is an Inventory. There are two kinds. A Tally counts nodes and pods. The process then caches both,
// stripped by StripNode and StripPod. A Reported reads the CapacityReport of a worker. A Tally on the worker has
// counted for that report (NewReport). In a report, nodes that are alike are one NodeState with a Count.
//
//	tally := capacity.NewTally()
//	nodes.AddEventHandler(tally.NodeHandler())
//	pods.AddEventHandler(tally.PodHandler())
//	cancel := tally.Subscribe(changed) // then, in another goroutine: tally.Snapshot()
//
// # What to watch out for
//
//   - Snapshots and their nodes are shared. Do not write to them.
//   - A report is stale when nobody has renewed it for a while, by the clock of the reading process. The time in the
//     report does not count. A process that has just started trusts the report that it finds for that long.
//   - Pods that have succeeded count until they are deleted.
//
// # Locks
//
// Tally.mu guards the counts, Reported.mu the last report, audience.mu the subscribers. No callback runs under a lock.
package capacity
