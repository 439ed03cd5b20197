// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package logs keeps the ends of the logs of jobs in the log archive. Every connected worker has its own instance.
//
// # When
//
// The logs of a copy that is Complete or Failed are read from its pods, which stay until the retention of the copy is
// over. An attempt that is evicted has pods that end within their grace period: their logs are followed to the end, as
// far as there are slots, and the others are read at once. A job that a user deletes while it runs takes its logs with
// it.
//
// # What it must not do
//
// Nothing waits for the logs. The package writes nothing to hub or worker, and has connections to the workers of its
// own. So it takes nothing from the budgets by which jobs are placed, ended and fenced. What cannot be read in time is
// missing, and the index of the attempt says why.
//
// # Bounds
//
// Slots bound how many logs are read at the same time, on one worker and in the process. An attempt that is evicted is
// read in a goroutine of its own, because it takes as long as its pods.
//
// # Locks
//
// Reconciler.mu guards which attempts are kept, and which are being followed. Code under it does no I/O.
package logs
