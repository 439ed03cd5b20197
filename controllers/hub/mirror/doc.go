// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mirror brings a placed TrainJob to one worker and its status back to the hub.
//
// There is one instance per connected worker, with its own queue, so that a slow worker delays no other. It is the only
// controller of the copies there. A key is the namespace and name that the hub TrainJob, its Dispatch and the copy
// share, or the name of a Tombstone. Reconcile (reconciler.go) sees all of them, adds what this process remembers
// (attempt.go), and has them judged once (judgement.Of). What is to be done about the TrainJob that has the name, the
// Collector does (package garbagecollection). What is to be done about the attempt, act does (steps.go): each of
// judgement's attempts has one step there, and the fields of a step say what it may touch.
//
// A copy has the spec, labels and annotations of its job that copy.go chooses. The worker gets the job's namespace
// (namespaces.go) and runtime (runtimes.go), and what its pods name if the job's policy says so (package dependencies),
// never volumes. lookup.go can look whether the rest is there, where no agent of the worker does. answers.go says which
// answers of a worker refuse the copy, hanging.go when a creation hangs for too long, and stuck.go when a copy can
// never start. A copy has the name of its job, so the worker itself refuses a second creation.
//
// No attempt ends because a cache does not show a copy. lookFor (search.go) asks the worker's API server, and says
// with one word what there is: the current copy, a second or an older copy, a foreign TrainJob, something that is left of
// the copy (JobSet, Jobs, pods), something that may still arrive, or nothing.
//
// The mirror changes a copy for three reasons only. A copy that the worker's agent has stopped goes on when the
// worker's execution lease allows it, and a suspension that is not Kueue's is ended (suspension.go). What Kueue says of
// a copy that it holds is shown, and ends the attempt if Kueue will never admit the copy (workload.go). Changes that
// others have made to the spec (edits.go), or to our labels and annotations, are changed back, with an Event; the job
// is moved if the worker does not allow that, or if somebody changes the copy again and again.
//
// After the copy is made, only one change of the job's spec has an effect on it: a suspension. If the user changes
// another field, an Event names the field (uncopied.go).
//
// The Dispatch shows steps and restarts of the copy (progress.go), from its status and its JobSet. They are part of
// writes that are made anyway, or are gathered for a second. A JobSet may be hidden, late or gone: nothing waits for
// it.
//
// The package does not know which cluster is far away. It does not retry on a worker that is not connected: all live
// keys come again with the next connection. The mirror remembers what matters for the seconds in which a cache lags
// behind our own writes. A process that loses it repeats requests, and assumes the worst of creations that got no
// answer (unanswered.go).
package mirror
