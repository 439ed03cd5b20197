// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package peers has the systems that Trainyard is compared with.
//
// # Random
//
// Random sends a job to any worker on whose nodes all its pods have a place, each with the same chance. It looks at
// jobs by priority, then age. Jobs that fit nowhere are passed (backfill), without a limit. It knows as much of nodes
// as Trainyard does, so the difference between the two is what scores and reservations are worth.
//
// # MultiKueue
//
// Kueue's MultiKueue (KEP-693; behaviour as of Kueue 0.19) creates a copy of each waiting job's Workload on the workers
// that are nominated. The first worker that admits the copy gets the job. AllAtOnce nominates all workers; Incremental
// three more every five minutes, in the order of the configuration. A worker admits by quota: what its ClusterQueue has
// left of each flavor, summed over its nodes. Here the quota of a flavor is all nodes with GPUs of one product. So a
// job can be admitted where it fits by sum and not by node, and then some of its pods wait for nodes while it holds its
// quota. Topology-aware scheduling, which looks at nodes, is off by default. waitForPodsReady, which would take such a
// job away again after a timeout, is off too.
//
// Where the documentation of MultiKueue leaves room, or a choice would cost it time, this model decides in its favor:
//
//   - All copies of a job are admitted at once where there is quota, and the winner is any of them with the same
//     chance. In fact quota is taken on the other workers too, until their copies are deleted.
//   - The manager has quota for everything, so that jobs that wait for a worker take no quota away from others.
//   - Requests take no time, unless Rate is set. There is no limit of 20 workers.
//   - ClusterQueues are BestEffortFIFO: later jobs pass jobs that do not fit.
package peers
