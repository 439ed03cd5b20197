// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package explanation says where a TrainJob is and why, or why it waits, from what the hub has on record. It asks nobody: whoever
// calls it reads the Observation.
//
//	err := explanation.Describe(out, observation, wide)
//
// Why a job is on its worker is what was true when it was decided (annotation trainyard.dev/decision). Why one waits is what is true
// now, for each worker (status.explanation).
package explanation
