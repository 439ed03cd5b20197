// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package world is a yard (package yard) in which everything can fail: between the manager and each API server is a Link with faults, and
// a Recorder writes down what really happens.
//
// Jobs of a world are submitted through it, so that Check knows which they are. The workers' failover is short, and the manager's
// patience too: a worker that does not answer is Unreachable after some seconds, and lost after some more.
package world
