// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expiry deletes dispatched TrainJobs from the hub when the time after their end is over. A user sets the time
// by the annotation trainyard.dev/ttl-seconds-after-finished of the job, an admin by ttlSecondsAfterFinished of its
// DispatchPolicy. The annotation counts before the policy. Without both, a job stays.
//
// The time begins when the Dispatch says Finished, by the hub's clock. Only the manager writes a Dispatch's status, so
// nobody else can make a job that runs look finished. An annotation that is no number of seconds keeps the job,
// whatever the policy says, and an Event says so.
//
// A deletion holds only for the TrainJob that was looked at, by UID and resourceVersion: a job that was created again
// or changed meanwhile is looked at again. The Dispatch and the copy of a deleted job are deleted as if the user had
// deleted the job (packages mirror and garbagecollection).
//
// With an Archive, each job and its Dispatch are archived before the deletion (package archive). If that fails, the job
// stays, an Event says why, and the job is tried again with a back-off.
//
// A finished job costs two reconciles when it ends and one when its time is over, from caches, and one a day if the
// time is longer. The controller keeps nothing for jobs without a time. Changes that may shorten times wake the jobs
// that they are about (watches.go). Other changes wake no job: the reconcile at the earlier time sees them.
//
// Locks: none. Reconciler.archived is a sync.Map, and archive.Dir writes one entry at a time.
package expiry
