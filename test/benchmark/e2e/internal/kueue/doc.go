// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kueue runs Kueue's MultiKueue for the benchmark: Kueue's own manager (test/kueue) on the hub and on every
// worker.
//
// # Tuned
//
// Tuning changes what an admin of this version can configure: limits of requests and concurrency, and which
// integrations run. One limit cannot be configured: MultiKueue's clients of the workers make 5 requests per second
// each. So each worker is registered several times, each time for its own ClusterQueues, and the jobs are spread over
// these.
package kueue
