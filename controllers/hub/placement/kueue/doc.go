// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kueue knows which hub TrainJobs a Kueue on the hub has, and which of them MultiKueue dispatches.
//
// Upstream's TrainJob CRD admits one value of spec.managedBy beside the built-in one, so Trainyard and MultiKueue own
// the same value by default. MultiKueue unsuspends the hub TrainJob when one of its clusters has admitted the job.
// Without this package the job would then be placed too, and run twice.
//
// A Watch is asked with Watch.Of, and tells its subscribers when it would answer something else:
//
//	watch := kueue.New(kueue.Options{Config: config, HTTPClient: httpClient})
//	watch.Subscribe(func(key types.NamespacedName) { ... })
//	manager.Add(watch)
//	watch.Of(job).Standing
//
// The facts about Kueue that this package stands on, as of v0.19.0:
//
//   - Kueue unsuspends a job when its Workload is Admitted. If somebody else unsuspends the job before, Kueue suspends
//     it again.
//   - A Workload is Admitted when it has quota and all its admission checks are Ready. So a Workload that the cache
//     shows as Admitted has the checks of its ClusterQueue. A Workload that the cache does not show as Admitted says
//     nothing about checks that may come.
//   - MultiKueue acts on a Workload with a check of its controller, also if the check came to a Workload that was
//     Admitted before.
//   - If the check is taken off the ClusterQueue later, MultiKueue leaves its copy where it is. The Workload's
//     status.clusterName names that cluster until Kueue evicts the job.
//
// # What is watched
//
// One CustomResourceDefinition, as metadata, tells whether Kueue is installed. While it is, Workloads and
// AdmissionChecks are watched, of which the caches keep only what answer.go reads. On a hub without Kueue that is all:
// one watch, which has nothing to show.
//
// Watch.mu guards the fields that are declared below it. No I/O happens under it, and subscribers are called without
// it.
package kueue
