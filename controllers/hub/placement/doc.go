// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package placement decides on which worker a hub TrainJob runs, and writes the decision as a Dispatch before any
// worker is touched.
//
// It has three parts:
//
//   - The Reconciler (reconciler.go) looks at one TrainJob. It observes the job and its Dispatch from caches and
//     classifies them (state.go). If the job is unplaced, the Reconciler writes what the job has been granted
//     (writer.go). Without a grant it gathers what the job needs (needs.go), tells the decider, and writes why the job
//     waits.
//   - The decider (package decider) owns the waiting list, the workers' capacity and the grants. It does one pass at a
//     time, and wakes the jobs that a pass was about.
//   - The watches (watches.go) tell the decider what has changed, and wake the jobs that a change is about.
//
// What a job needs comes from:
//
//	demand/         its pods, from its runtime
//	policy.go       its policy, and expressions.go: what the policies' expressions say about workers
//	asked.go        the workers that have refused the job lately, in the same circumstances
//	history.go      its earlier attempts
//	heldback.go     a job that somebody else may run waits
//	kueue/          a job that MultiKueue dispatches is not ours, and a job in a queue of the hub's Kueue waits
//
// A suspended job with quota of the hub's Kueue may wait behind Trainyard's admission check. admissioncheck.go tells
// Kueue whether a worker holds room for the job. The Dispatch is the record of that room, and mirror makes no copy
// before Kueue has resumed the job. activity.go says on each AdmissionCheck of Trainyard whether it can be decided.
//
// elsewhere.go says whether a placed job would fit on another worker. A second, small controller (validity.go) says on
// each DispatchPolicy whether it can be applied.
//
// Nothing polls. A waiting job is looked at again when a worker, its nodes or pods, a policy, a runtime or a Dispatch
// changes. A worker that refused the copy of a job is tried again after a back-off, or when the worker, the job or the
// runtime has changed.
//
// In memory, each under a lock of its own, are the decider's state (rebuilt from the Dispatches and the jobs before the
// first decision), the past of unplaced jobs, the runtimes that waiting jobs name, and the answers of expressions.
package placement
