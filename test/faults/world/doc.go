// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package world has a yard (package yard) in which everything can fail. A Link with faults is between the manager and
// each API server, and a Recorder records what really happens.
//
// Submit a world's jobs through the World, so that Check knows them. The workers' failover and the manager's timeouts
// are short: a worker that does not answer is Unreachable after some seconds, and lost after some more seconds.
package world
