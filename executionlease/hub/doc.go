// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hub is the hub's part of the execution leases. By its lease a worker's agent knows that the hub is alive, and
// the hub knows when the agent must have stopped the copies that are to be fenced. The agent's part is
// executionlease/worker. Package executionlease/protocol makes the decisions of both sides.
//
// An Answerer makes a reconciler for each connected worker. The reconciler creates this hub's ExecutionLease on the
// worker, and answers each challenge with one patch as soon as the watch shows the challenge. It has no timer, so an
// answer proves that the hub has read the challenge. It writes what it reads and answers into the Agents before it
// sends the answer. Controllers that decide about jobs of lost workers ask the Agents.
//
// # What to watch out for
//
//   - Only the leader answers. A leader that was stopped and goes on may read one more challenge before it notices.
//     Options.Leading keeps it from answering that challenge (process.Tenure: this process has renewed its Lease in
//     time, by its own clock). The margin covers the rest. The answer to an old challenge does no harm.
//   - A new leader counts from when it became the leader, because the leader before may have answered until then. It
//     believes a worker's AgentReady condition if that condition was written for the current fenceAfter (its
//     observedGeneration).
//   - Each answer has the condition that the lease is as it was read, whether it changes fenceAfter or not. The agent
//     writes to the lease too, and an answer that fails with Conflict is sent again at once.
//   - All times are of this process's monotonic clock.
//
// The mutex Agents.mu guards what the hub knows of each worker, and the subscribers. No callback runs under it.
package hub
