// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package placement decides on which worker a hub TrainJob runs, and writes the decision as a Dispatch before any worker is
// touched.
//
// Reconcile observes the TrainJob and its Dispatch from caches, classifies them (state.go), and places the job if it is
// unplaced. The question of where is answered by package dispatch; this package gathers what it asks for:
//
//	demand/         what the job needs, from its runtime
//	view.go         what every worker has free: nodes minus bound pods, minus what was placed there and is not bound yet
//	expressions.go  the compiled expressions of policies, and what they have answered about workers that have not changed since
//	line.go         the jobs that wait, in classes of equal demand, so that a change wakes the first of each class only
//	opening.go      nothing is decided after a start until the workers have shown what they have
//	copies.go       a job that may be running already waits
//	kueue/          a job that MultiKueue dispatches is not ours; a job in a queue of the hub's Kueue waits for its admission
//	asked.go        who refused the job lately, in the same circumstances, is not asked
//	promises.go     whether a placed job would fit elsewhere, and the room that is kept for it then
//
// A second, small controller (validity.go) says on each DispatchPolicy whether it can be applied.
//
// Nothing polls. A waiting job is looked at again when a worker, its nodes or pods, a policy, a runtime or a Dispatch changes,
// and a worker that refused its copy is asked again after a back-off, or when it, the job or the runtime has changed.
//
// In memory, under locks of their own: the ledger of what is placed (rebuilt from the Dispatches before the first decision),
// the line of waiting jobs (rebuilt as they are reconciled), and answers of expressions and explanations (made again when asked).
// Promises are there too; a restart forgets them until the moves of jobs are looked at again.
package placement
