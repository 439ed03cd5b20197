// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crashes kills the manager before and after each write that it makes for a job, once each. Then another
// manager continues.
//
// All requests of the manager, to the hub and to the workers, go through links (package links), which count the writes
// for each job. Many jobs do the same steps at the same time, and the manager is killed at a different write of each
// job. It is killed with SIGKILL: before the request has reached the API server, or after the API server has carried it
// out and before the manager knows. So each crash also hits the other jobs, in whatever state they are.
//
// The explorer (test/explorer) also kills managers between any two requests, in many more worlds, but it simulates
// placement, the connections and the caches. Here they are real, and so are the manager's start and its requests. The
// explorer cannot replace these tests: its steps in CI do not find the broken promise crash-between-writes of package
// broken, and these tests do.
package crashes
