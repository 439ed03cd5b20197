// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kueue knows which hub TrainJobs the hub's Kueue manages, and which of them MultiKueue dispatches.
//
// Upstream's TrainJob CRD permits one value of spec.managedBy beside the built-in value. So by default Trainyard and
// MultiKueue have the same value. MultiKueue unsuspends the hub TrainJob when one of its clusters has admitted the job.
// Without this package, placement would then place the job too, and the job would run twice.
//
// Watch.Of answers for a job. The Watch tells its subscribers when an answer may have changed:
//
//	watch := kueue.New(kueue.Options{Config: config, HTTPClient: httpClient})
//	watch.Subscribe(func(key types.NamespacedName) { ... })
//	manager.Add(watch)
//	watch.Of(job).Standing
//
// With Options.Checks, Of also says which suspended jobs have quota and wait only for these admission checks.
// Review.Patch makes what gives these checks a state.
//
// This package relies on these facts about Kueue, as of v0.19.2:
//
//   - Kueue unsuspends a job when its Workload is Admitted. If somebody else unsuspends the job before that, Kueue
//     suspends it again.
//   - A Workload is Admitted when it has quota and all its admission checks are Ready. So a Workload that the cache
//     shows as Admitted has the checks of its ClusterQueue. Any other Workload may still get checks.
//   - Kueue admits a Workload when its last check is Ready, and resumes the job after that. Retry evicts the Workload,
//     and an eviction makes all checks Pending. Kueue counts in the check how often it was Retry, and keeps the
//     Workload out of the queue until the check's delay has passed.
//   - MultiKueue acts on a Workload with a check of its controller, even if the Workload was Admitted before it got the
//     check.
//   - If the check is removed from the ClusterQueue later, MultiKueue leaves its copy where it is. The Workload's
//     status.clusterName names that cluster until Kueue evicts the job.
//
// # What is watched
//
// The Watch watches one CustomResourceDefinition, as metadata, which says whether Kueue is installed. While Kueue is
// installed, it also watches Workloads and AdmissionChecks, and with Options.Checks ResourceFlavors: Kueue writes them
// into a job only when it resumes the job. The caches of Workloads keep only the fields that answer.go, review.go
// and flavors.go read. A hub without Kueue has only the one watch, which stays empty.
//
// Watch.mu guards the fields that are declared below it. No I/O happens under it, and subscribers are called without
// it.
package kueue
