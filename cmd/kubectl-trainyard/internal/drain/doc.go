// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package drain finds from Dispatches what happens to the jobs of a worker that is being drained.
//
//	progress := drain.NewProgress("gpu-east")
//	lines := progress.Look(dispatches) // What has changed since the last look, a line for each job.
//	stay, leave := progress.Counts()
//
// A Progress keeps the jobs that it has seen on the worker, to say where they have moved. The package does no I/O.
package drain
