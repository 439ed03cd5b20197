// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quota computes what the ClusterQueues of one worker's Kueue have available. It is pure.
//
// How to use it: make a Tree with New from what was counted on the worker. Ask with Queue which ClusterQueue a
// LocalQueue leads to, and with Available what that ClusterQueue may still reserve of a resource of a flavor. Charge
// takes off what jobs will reserve, Without gives back what the Workloads of some jobs have reserved, and Empty gives
// back everything.
//
// # The rules
//
// ClusterQueues and Cohorts form trees. The quota of a subtree is the nominal quota of its root and what the children
// lend. A child keeps what is above its lendingLimit. What a child uses beyond that counts against its parent. A
// ClusterQueue has available what is left of what it keeps, and what its parent has available, at most borrowingLimit
// more than its own. So its siblings may use its nominal quota while it does not. A Cohort that a ClusterQueue names
// and that does not exist has no quota of its own.
//
// # What to watch out for
//
// A worker decides what was counted on it. New takes any input, in time that is linear in its size for each level of
// Cohorts. Of a worker with more than 4,096 ClusterQueues and Cohorts nothing is counted, and ClusterQueues of a tree
// with more than 64 levels start nothing. Queue says so.
//
// The numbers are what Kueue may admit without preemption. Kueue may admit more by preempting Workloads, and less
// because of topologies, admission checks or fair sharing. Amounts are in the units of package capacity: cpu in
// thousandths, everything else in units. A Tree never changes, and goroutines may share it.
package quota
