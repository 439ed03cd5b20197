// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kueue runs Kueue's MultiKueue for the benchmark: Kueue's own manager (test/kueue) on the hub and on every worker.
//
// # Tuned
//
// What Tuning changes is what an admin of this version can configure: limits of requests and concurrency, and which integrations run. One
// limit cannot be configured: MultiKueue's clients of the workers make 5 requests per second each. So workers are registered several
// times, each time for ClusterQueues of their own, over which the jobs are spread.
package kueue
