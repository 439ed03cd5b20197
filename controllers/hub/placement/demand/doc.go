// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package demand derives what a TrainJob needs from the job and its runtime: its PodSets (pods.go), how large it may be
// (limits.go), its priority (priority.go), and all of it for a decision (fill.go). It uses the code that builds the
// JobSet on a worker: the trainer module's runtime framework. Placement uses it, and so do tools that ask what
// placement would do. The runtime is the hub's, and on workers with another runtime of the name the worker's (own.go).
package demand
