// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package executionlease holds the packages of the execution lease: the permission of one hub for its copies to run on
// one worker. This package has no code. Its parts are:
//
//   - protocol decides for both sides: challenges, answers, deadlines, attempts. It is pure.
//   - hub runs in the manager. It answers the challenges of the agents.
//   - worker runs in the worker-agent. It writes the challenges, and stops the copies of a silent hub.
//
// docs/design.md, "Fencing is challenge and answer", gives the reason for this protocol.
package executionlease
