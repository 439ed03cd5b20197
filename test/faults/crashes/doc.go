// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crashes kills the manager before and after each write that it makes for a job, once each, and lets another one go on.
//
// All requests of the manager, to the hub and to the workers, come through links (package links), which count the writes for each job.
// Many jobs live the same life at the same time, and each of them has another write at which the manager is killed: with SIGKILL, before the
// request has reached the API server or after it was carried out there, and before the manager knows. So each crash also hits the other
// jobs, wherever they are.
//
// The explorer (test/explorer) kills managers between any two requests too, in many more worlds, but it plays placement, the
// connections and the caches. Here they are real, and so are the manager's start and its requests. The explorer does not replace
// these tests: its steps in CI do not notice the broken promise crash-between-writes of package broken, and these tests do.
package crashes
