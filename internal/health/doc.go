// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package health says from a job's pods why the job makes no progress, and where. Only List and WarningOf do I/O: List
// reads a cache.
//
//	var jobs health.Jobs // one per process
//
//	in := health.Input{Pods: pods, Since: since, Progress: job.Status.TrainerStatus}
//	jobs.Observe(key, &in, recorded, now)
//	trouble, recheck := health.Diagnose(in, limits, now)
//
// Other functions are for the watch: the cache holds the pods of Selector, with the transform Strip and the index
// IndexByJobSet. Changed filters updates, and JobSetOf returns the job of a pod. The process needs permission to get,
// list and watch pods. Cause is for a job that has failed.
//
// # What is a trouble
//
// The constants list the troubles, the worst first. Only pods of the present attempt count. Of pods that replaced each
// other, the youngest counts, and the earlier ones count as crashes. A pod with a scheduling gate is no trouble, and
// its job may lack ready pods. A pod that is being deleted is no trouble unless it lost its node or was evicted.
//
// A pod does not show that a volume cannot be mounted: the kubelet reports this in Events only. Such a pod waits for
// "its volumes or its network" until NoPodReady, which has the words of WarningOf. The scheduler reports missing or
// unbound claims: Unschedulable.
//
// # Messages
//
// The same trouble has the same message. What Kubernetes writes changes all the time, so this package leaves the
// changes out. ErrImagePull and ImagePullBackOff are the same trouble. Messages have no back-off times and none of the
// scheduler's counts of nodes. A container that crashed too often counts as crashing until it has run for ten minutes.
// A message names the first pod in the job that has the trouble, and says "and others" for the rest. It changes only
// when an earlier pod gets the trouble. Two changes are accepted: a replaced pod has a new name, and the user's program
// may write a new termination message each time. Before 1.32, kubelets do not repeat the cause of a failed pull during
// its back-off, so there the cause comes and goes.
//
// Texts of others are cut to one line of 200 bytes. Queries of URLs are removed, because they can be signatures.
//
// # Time
//
// All times are the caller's: Input.Since and the times of Jobs. They are never compared with the times of a pod,
// which come from the clocks of API servers and nodes. Times of pods have two uses. creationTimestamp, from the API
// server's clock, orders the pods of one slot. finishedAt, from the clocks of nodes, orders pods that ended in the
// same way: Cause chooses its words by it, and nothing is decided by it.
//
// # Watch out
//
//   - Without Jobs, a container in a crash loop counts as well whenever it runs. Limits then count from Input.Since,
//     which is too early for pods that start later, behind an initializer or a gate.
//   - The completion index shows which pod replaces which. Each pod of a Job without indexes has a slot of its own.
//
// Jobs.jobs is under a lock.
package health
