// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package health says from a job's pods why the job does not get on: which pod, on which node, and what the matter is. It does no
// I/O but List, which reads a cache.
//
//	var memory health.Memory // one per process
//
//	in := health.Input{Pods: pods, Since: since, Progress: job.Status.TrainerStatus}
//	memory.Observe(key, &in, standing, now)
//	trouble, recheck := health.Diagnose(in, limits, now)
//
// The rest is for the watch: a cache of Selector's pods with the transform Strip and the index IndexByJobSet, updates that pass
// Changed, and JobSetOf for whom they concern. The process may get, list and watch pods. Cause is for a job that has failed.
//
// # What is a trouble
//
// The constants say it, the worst first. Only pods of the present attempt count, and of pods that replace each other in one place
// the youngest; those before it count as crashes there. A pod with a scheduling gate waits and is no trouble, and while there is
// one the job may be without ready pods. A pod that is being deleted is no trouble unless it lost its node or was evicted.
//
// Volumes that cannot be mounted are not to be seen in a pod: the kubelet tells them in Events only, and the pod is one that waits
// for "its volumes or its network" until NoPodReady. Claims that are missing or unbound are the scheduler's to tell: Unschedulable.
//
// # Messages
//
// The same trouble has the same message. What Kubernetes writes has counters and alternates, and is brought into a form that does
// not: ErrImagePull and ImagePullBackOff are one, back-off times and the scheduler's counts of nodes are left out, and a container
// that crashed too often has to run for ten minutes before it counts as well. Of several pods the first in the job is named, "and
// others" stands for the rest, so when one after another gets into the same trouble, the message changes only when an earlier
// one does. Two changes are not to be had otherwise and are accepted: a pod that takes another's place has another name, and the
// termination message is whatever the user's program has written, each time anew. Kubelets before 1.32 do not repeat the cause of a
// failed pull during its back-off, so with those it comes and goes.
//
// What others have written is cut to one line of 200 bytes. The queries of URLs are removed, as they can be signatures.
//
// # Time
//
// Time is the caller's: Input.Since and what Memory saw. A pod's times come from the clocks of API servers and nodes, and are not
// compared with it. There are two uses of them: creationTimestamp, by the API server's clock, orders the pods of one place; and
// finishedAt, by the clocks of nodes, orders pods that ended in the same way for Cause, which chooses words and decides nothing.
//
// # Watch out
//
//   - Without Memory, a container in a crash loop counts as well whenever it runs, and limits are counted from Input.Since only,
//     which is too early for what starts later: pods behind an initializer, or behind a gate.
//   - Whether a pod was replaced is told by its completion index. Pods of Jobs without one each have a place of their own.
//
// Under a lock: Memory.jobs.
package health
