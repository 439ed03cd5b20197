// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mirror brings a placed TrainJob to one worker and its status back to the hub.
//
// There is one instance per connected worker, with its own queue, so that a slow worker delays nobody else. A key is the
// namespace and name that the hub TrainJob, its Dispatch and the copy share. Reconcile observes all three from caches, calls
// decide, a pure function (state.go), and does what the state says:
//
//	withdrawing   the job is leaving: delete the copy, and wait until it is gone with its pods
//	released      the copy is gone: let the Dispatch go
//	blocked       a copy of an older attempt has the name: garbagecollection deletes it, and its deletion wakes us
//	conflicting   a copy of another TrainJob of this hub has the name: the attempt is over
//	misplaced     the worker's name leads to another cluster than when the job was placed: nothing is done
//	absent        make sure that namespace and runtime are there, and create the copy
//	copyDeleted   somebody deleted the copy: the attempt is over
//	mirrored      bring spec.suspend there and the status back
//	evicting      the attempt has to end: delete the copy, and end it when copy and pods are gone (evict.go)
//	finished      the copy has ended: hub status at once, then the Dispatch
//
// What the Dispatch shows of the copy (progress.go) comes from the copy's status and from its JobSet in the worker's cache. It rides on
// the writes that are made anyway: Running, and Finished. Between these the Dispatch is written when a step or the count of restarts
// changes, gathered for a second. JobSets may be hidden, late or gone: nothing waits for them. Their restarts may be all that has
// changed about a copy, so JobSetEvents is a source of keys too.
//
// The package takes two clients and does not know which cluster is far away. It does not retry on a worker that is not
// connected: all live keys come again with the next connection (package perworker).
//
// What it keeps in memory (memory.go, under one lock) is about the seconds in which a cache lags behind our own writes; losing
// it costs a repeated request, never a wrong one. The one thing more that is lost is what a JobSet said that has gone before its copy
// was Running for ten seconds.
package mirror
