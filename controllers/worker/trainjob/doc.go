// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package trainjob is the TrainJob controller of one cluster. It turns a TrainJob into a JobSet with the runtime
// framework of the Kubeflow Trainer, and writes the JobSet's state into the TrainJob's status. It replaces the Kubeflow
// Trainer, so the two must not run together: cmd/worker-agent takes the Trainer's leader election lease.
//
// The framework (github.com/kubeflow/trainer/v2/pkg/runtime) decides what the objects look like and what the JobSet's
// status means. Each pass of this controller observes (cached TrainJob, JobSet and pods), decides (the pure function in
// state.go; its table test shows every case), acts, and writes the status once if it changed. Unlike the Trainer:
//
//   - It does not queue a TrainJob that another controller manages (spec.managedBy).
//   - Complete and Failed are final. It builds nothing for such a job and never changes its status.
//   - It creates nothing for a TrainJob that is being deleted.
//   - It reads and changes only a JobSet that this TrainJob controls by UID. If another JobSet has the name, also one
//     of an earlier TrainJob, the job waits until that JobSet is gone.
//   - Before it creates the first JobSet, it reads the TrainJob from the API server. The cache may not have seen
//     "Complete" or a deletion yet, and such a job must not start again. If somebody deletes the TrainJob between that
//     read and the creation, the garbage collector deletes the JobSet.
//   - It deletes a JobSet after activeDeadlineSeconds, and repeats this until the JobSet is gone.
//   - If JobSet does not allow a change on an existing JobSet that has never started, it recreates that JobSet
//     (build.go).
//   - It deletes a TrainJob that has ended when the TTL in its annotation is over (v1alpha1.AnnotationTTL).
//   - It reports what keeps a running job from making progress (package health), and why a job failed.
//   - It creates a JobSet only when the pods of the earlier JobSet have ended and no Job of that JobSet can make more.
//     It resumes a JobSet only when its Jobs have the wanted template (resume.go). A controller that has not seen the
//     deletion of a JobSet can still make a Job for it. To apply a known JobSet never creates one: it names the UID.
//   - It deletes what belonged to an earlier TrainJob of the same name and was not collected (leftovers.go).
//   - It creates nothing for a TrainJob that Options.Gate holds back.
//   - It builds and applies nothing while a job runs and none of the job's objects has changed.
//
// Use: register AddToScheme, give CacheOptions to the manager, and call Add. Each instance needs a manager of its own.
//
// Watch out:
//
//   - The framework must read runtimes through a cache (the manager's client). It writes a snapshot of the runtime with
//     the kind that the reader reports, and only cached reads report a kind. It refuses a snapshot without a kind.
//   - The framework changes its TrainJob (torchtune and Flux rewrite the command), so it gets a deep copy.
//   - The queue gives a job to one goroutine at a time. So a knownJob needs no lock.
//
// A pass, and the parts of the Reconciler that it calls:
//
//	observer.observe          reads. framework.status derives the status from the JobSet.
//	decide                    returns state, action and new status
//	objectBuilder.build       makes and applies the objects, if the action is Build:
//	  leftovers.await           waits for what an earlier JobSet of the name has left
//	  framework.newObjects      asks the runtime framework for the objects
//	  applyBeside, applyJobSet  apply them. prepareJobs precedes a resumption, rebuild follows a refusal.
//	leftovers.delete...       deletes what the garbage collector has forgotten
//	announcer.tell            reports news by Events
//	Clients.writeStatus       writes the status, if it changed
//	follow                    updates metrics and what is remembered
//
// Locks: knownJobs, under its lock, and health.Jobs, with its own lock. The process may lose all of it: it only saves
// work and repeated Events. Decisions depend on what the cluster has.
package trainjob
