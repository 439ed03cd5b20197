// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hub is the hub's part of the execution leases, by which a worker's agent knows that the hub is alive, and the hub
// knows when the agent must have stopped what is to be fenced. The agent's part is executionlease/worker. What both sides say and
// count is executionlease/protocol.
//
// A Keeper makes a reconciler for every connected worker. It keeps that worker's ExecutionLease of this hub: creates it, and answers
// each challenge of the agent with one patch, as soon as the watch shows it. There is no timer: what is sent proves that somebody has
// read. What it reads and answers it notes in the Book, before it answers; whoever decides about jobs of lost workers asks the Book.
//
// # What to watch out for
//
//   - Only the leader answers. A leader that was stopped and goes on may read one more challenge before it notices: Options.Leading
//     (process.Tenure: it has renewed its lease in time, by its own clock) keeps it from answering that, and the margin
//     covers the rest. To answer an old challenge does no harm.
//   - A process that has just become leader counts from then on, and believes what the AgentReady condition says of a worker's agent,
//     if that was said for the fenceAfter that is asked for now (its observedGeneration): the one before may have answered until then.
//   - Answers that change fenceAfter and those that do not are written under the same condition, that the lease is as it was read. The
//     agent writes there too; a conflict is tried again at once.
//   - All times are of this process's monotonic clock.
//
// Under Book.mu: what is known of each worker, and who has subscribed. Nobody is called back under it.
package hub
