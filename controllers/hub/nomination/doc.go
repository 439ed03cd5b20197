// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nomination is a dispatcher of MultiKueue: it says which worker MultiKueue gives a job to. MultiKueue keeps
// its data path: it creates the clone of the Workload, takes its admission, creates the job and brings its status.
//
// The admin sets multiKueue.dispatcherName in the configuration of the hub's Kueue to DispatcherName. Kueue then leaves
// status.nominatedClusterNames of Workloads alone, and creates a clone on each cluster that is named there. This
// package names one: the worker where placement has room for all pods of the Workload at the same time.
//
//	reconciler := nomination.NewReconciler(options)
//	reconciler.Add(manager)
//	perworker.Kind{Sources: func(...) { return []source.Source{nomination.CloneEvents(cache)} }, New: func(...) { return reconciler.Clones(), nil }, Apart: true}
//
// # What it does with a Workload
//
// Reconcile reads the Workload, MultiKueue's admission check with its clusters, and the clones on the workers, all from
// caches. decide (state.go) says what to do. A Workload that needs a worker comes onto the waiting list (waiting.go).
// The list is served in the order of priority and age, with one question to placement each. The room is kept until the
// pods of the job are counted on the worker. If the nominated worker does not admit the job, and another worker has
// room, the other worker is nominated instead. A worker that did not admit it is not asked again for a while
// (progress.go). targets.go says which clusters MultiKueue may use.
//
// # What it relies on
//
// These are facts about Kueue v0.19.2. test/benchmark/e2e/beside tests them on a real Kueue.
//
//   - Kueue gives the job to a worker that has admitted the clone, whatever is nominated. It sets status.clusterName in
//     the write in which it takes the nomination off, and its webhook refuses a name that is not nominated. So a worker
//     that has admitted the clone stays nominated. If an admission and a withdrawal cross, it is nominated again.
//   - Kueue applies all that it knows of a status with the field manager kueue-admission. A nomination of another
//     manager could not be taken off, and the CRD refuses clusterName beside a nomination. So nominations are applied
//     in Kueue's name, with all that Kueue owns (ownership.go).
//   - An eviction takes the nomination off. The Workload is nominated again when it has quota again.
//
// The Reconciler keeps no state that must survive. All its fields except inbox and anyWaiting belong to the one
// goroutine of its controller. These two are safe for concurrent use.
package nomination
