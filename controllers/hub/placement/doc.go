// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package placement decides on which worker a hub TrainJob runs, and writes the decision as a Dispatch before any
// worker is touched.
//
// It has three parts:
//
//   - The Reconciler (reconciler.go) takes one step for one TrainJob. It observes the job and its Dispatch from caches
//     (observation.go), decides what is next (state.go), and does that. If the job has been granted a worker, the
//     Reconciler writes the grant (writer.go). If the job is unplaced, the Reconciler gathers what it needs (needs.go),
//     and tells the decider. A job that gets a worker at once is observed again. Any other job waits, and the Reconciler
//     writes why.
//   - The decider (package decider) owns the waiting list, the workers' capacity and the grants. It does one pass at a
//     time, and wakes the jobs that a pass was about.
//   - The watches (watches.go) tell the decider what has changed, and wake the jobs that a change is about.
//
// What a job needs comes from:
//
//	demand/         its pods, from its runtime
//	policy.go       its policy, and expressions.go: what the policies' expressions say about workers
//	asked.go        the workers that have refused the job lately, in the same circumstances
//	giveup.go       how long the job may wait
//	retry.go        the user's request to ask them again
//	waiting.go      its earlier attempts
//
// What keeps a job off the waiting list, whatever capacity the workers have, is one ordered list (obstacles.go). One
// obstacle is Kueue (package kueue): a job that MultiKueue dispatches is not ours, and a job in a queue of the hub's
// Kueue waits.
//
// A suspended job with quota of the hub's Kueue may wait behind Trainyard's admission check. admissioncheck.go tells
// Kueue whether a worker holds room for the job. The Dispatch is the record of that room, and mirror makes no copy
// before Kueue has resumed the job.
//
// room.go says whether a job that is placed, or that somebody else places, would fit on another worker. Two small
// controllers (conditions.go) say on each DispatchPolicy whether it can be applied, and on each AdmissionCheck of
// Trainyard whether it can be decided.
//
// Nothing polls. A waiting job is looked at again when a worker, its nodes or pods, a policy, a runtime or a Dispatch
// changes. A worker that refused the copy of a job is tried again after a back-off, or when the worker, the job or the
// runtime has changed.
//
// In memory, each under a lock of its own, are the decider's state (rebuilt from the Dispatches and the jobs before the
// first decision), the jobs that wait with the past of unplaced jobs, and the answers of expressions.
package placement
