// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package explanation says where a TrainJob is and why, or why it waits, from the hub's records. Only
// Read and Complete do I/O.
//
//	observation, err := explanation.Read(ctx, hub, key, now)
//	observation.Complete(ctx, hub)
//	err = explanation.Describe(out, observation, wide)
//
// The reason for a job's worker is from the time of the decision (annotation trainyard.dev/decision). The reason why a
// job waits is current, for each worker (status.explanation).
package explanation
