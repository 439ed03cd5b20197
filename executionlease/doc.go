// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package executionlease is the room of the execution lease: the permission of one hub for its copies to run on one worker.
// The package itself has no code. It has three parts:
//
//   - protocol decides, on both sides: challenges, answers, deadlines, attempts. It is pure.
//   - hub runs in the manager. It answers the challenges of the agents.
//   - worker runs in the worker-agent. It writes the challenges, and stops the copies of a hub that is silent.
//
// docs/design.md, "Fencing is challenge and answer", gives the reason for this protocol.
package executionlease
