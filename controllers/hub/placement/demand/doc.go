// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package demand derives what a TrainJob needs from the job and its runtime, with the same code that builds its JobSet on a
// worker: the trainer module's runtime framework. It serves placement, and those who ask what placement would do.
package demand
