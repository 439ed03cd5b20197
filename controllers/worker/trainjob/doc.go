// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package trainjob is the TrainJob controller of one cluster: it turns a TrainJob into a JobSet with the runtime framework of
// the Kubeflow Trainer module, and brings the JobSet's state back into the TrainJob's status. It does for a cluster what the
// Kubeflow Trainer does there, so the two must not run together; cmd/worker-agent takes the Trainer's leader election lease.
//
// The framework (github.com/kubeflow/trainer/v2/pkg/runtime) decides what the objects look like and what the JobSet's status
// means. The loop is ours. Each pass observes (cached TrainJob, JobSet and pods), decides (the pure function in state.go, whose
// table test is its documentation), acts, and writes the status once, if it differs. Where it departs from the Trainer's own loop:
//
//   - A TrainJob that somebody else manages (spec.managedBy) is not even queued.
//   - Complete and Failed are final. Nothing is built for such a job, and its status never changes.
//   - Nothing is created for a TrainJob that is being deleted.
//   - Only a JobSet that this very TrainJob (by UID) controls is looked at. A namesake, also the one left by an earlier
//     TrainJob of the same name, is neither read as ours nor changed; the job waits until it is gone.
//   - Before the first JobSet is created, the TrainJob is read from the API server, not from the cache: a cache that has not yet
//     seen "Complete" or a deletion must not start a job again. What cannot be excluded is a deletion between that read and the
//     creation; the garbage collector takes that JobSet with the TrainJob.
//   - A JobSet that has to go because of activeDeadlineSeconds is deleted again until it is gone.
//   - A change that JobSet does not allow on an existing JobSet takes effect by making the JobSet anew, as long as it has never
//     started (rebuild.go).
//   - A TrainJob that has ended goes when the TTL in its annotation is over (v1alpha1.AnnotationTTL).
//   - What keeps a running job from getting on is told (package health), and so is why it failed.
//   - A JobSet is made only when the pods of one before it have ended and no Job of it can make others, and resumed only when its Jobs
//     have the wanted template (resume.go). What cannot be excluded is that a controller which has yet to see that a JobSet is gone makes
//     a Job of it. An apply to a JobSet that was seen names its UID, so that it never creates one.
//   - What an earlier TrainJob of the same name has left, and the garbage collector too, is deleted (leftovers.go).
//   - A TrainJob can be held back (Options.Gate): nothing is created for it.
//   - While a job runs and nothing of what was built for it has changed, nothing is built or applied.
//
// Use: register AddToScheme, give CacheOptions to the manager, and call Add. Several instances can live in one process, each
// with a manager of its own; their metrics are sums.
//
// Watch out:
//
//   - The runtimes must read through a cache (the manager's client). They write a snapshot of the training runtime with
//     the kind as the reader reports it, and only cached reads report one; a snapshot without it is refused from then on.
//   - The framework changes the TrainJob that it is given (torchtune and Flux rewrite the command). It gets a copy.
//   - A pass for a job is given to one goroutine at a time by the queue. That is what lets a jobMemory go without a lock.
//
// State in memory: memory.jobs and memory.changes, under memory.mu, and what package health has seen. All of it may be lost at any
// time: it saves work and repetition. What decides is read from the cluster.
package trainjob
