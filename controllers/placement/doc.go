// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package placement decides on which worker a hub TrainJob runs, and writes the decision as a Dispatch before any worker is
// touched.
//
// Reconcile observes the TrainJob and its Dispatch from caches, classifies them (state.go), and places the job if it is
// unplaced. The question of where is answered by package dispatch; this package gathers what it asks for:
//
//	demand/         what the job needs, from its runtime
//	capacity.go     what every worker has free: nodes minus bound pods, minus what was placed there and is not bound yet
//	expressions.go  the compiled expressions of policies, and what they have answered about workers that have not changed since
//	line.go         the jobs that wait, in classes of equal demand, so that a change wakes the first of each class only
//
// A second, small controller (validity.go) says on each DispatchPolicy whether it can be applied.
//
// Nothing polls. A waiting job is looked at again when a worker, its nodes or pods, a policy, a runtime or a Dispatch changes,
// and a worker that refused its copy is asked again after a back-off.
//
// In memory, under locks of their own: the ledger of what is placed (rebuilt from the Dispatches before the first decision),
// the line of waiting jobs (rebuilt as they are reconciled), and answers of expressions and explanations (made again when asked).
package placement
