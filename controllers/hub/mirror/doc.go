// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mirror brings a placed TrainJob to one worker and its status back to the hub.
//
// There is one instance per connected worker, with its own queue, so that a slow worker delays nobody else. A key is the
// namespace and name that the hub TrainJob, its Dispatch and the copy share. Reconcile observes all three from caches, calls
// decide, a pure function (state.go), and does what the state says. The states refine those of the Dispatch, which package lifecycle
// has with all writes that lead from one to another:
//
//	Waiting, Ended, Finished, another worker's
//	  idle          nothing is done, whatever the copy says by now
//	Leaving, or the TrainJob is gone or going
//	  withdrawing   delete the copy, and wait until it is gone with its pods
//	  released      the copy is gone: let the Dispatch go
//	Lost
//	  returned      say that the worker is back, and do nothing before that is on record
//	Placed, Copied, Evicting
//	  misplaced     the worker's name leads to another cluster than when the job was placed: nothing is done
//	  blocked       a copy of an older attempt has the name: garbagecollection deletes it, and its deletion wakes us.
//	                Or the job is suspended and has no copy: placement ends the attempt, which wakes us
//	  conflicting   a copy of another TrainJob of this hub has the name: the attempt is over
//	  absent        make sure that namespace and runtime are there, and create the copy
//	  copyDeleted   the copy is gone: when its pods are too, the attempt is over
//	  mirrored      keep the copy what it is to be (keep.go), and bring the status back
//	  evicting      the attempt has to end: delete the copy, and end it when copy and pods are gone (evict.go)
//	  finished      the copy has ended: hub status at once, then the Dispatch
//
// A copy is kept what it was made. What the worker's agent has stopped goes on when the worker's execution lease says so, and what the
// worker's Kueue has suspended is left to Kueue (suspension.go). What others have changed in its spec (edits.go), or of the labels and
// annotations that are ours, is changed back, with an Event. If the worker does not let that be changed back, or somebody changes it
// again and again, the job is moved. A copy whose UID is on record is ours whatever its labels say.
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
// it costs a repeated request, never a wrong one. What a JobSet said is lost that has gone before its copy was Running for ten seconds. Of
// creations that got no answer, for which an attempt is kept from ending, the next mirror assumes the worst (unanswered.go).
// If two of them are carried out after all, the second copy of the attempt goes, and the attempt ends (presence second).
package mirror
