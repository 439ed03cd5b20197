// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package drain says what becomes of the jobs of a worker that is being drained, from their Dispatches.
//
//	progress := drain.NewProgress("gpu-east")
//	lines := progress.Look(dispatches) // What has changed since the last look, a line for each job.
//	stay, leave := progress.Counts()
//
// It remembers the jobs that it has seen on the worker, so as to say where they went. It does no I/O.
package drain
