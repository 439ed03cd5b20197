// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package failover decides what happens to the jobs of a worker that is lost, and to deletions that wait for it.
//
// A key is the name of a WorkerCluster. Reconcile observes the WorkerCluster, its connection, the other WorkerClusters and the live
// Dispatches, and decides in two steps, each a pure function: judge (worker.go) says how it is with the worker,
//
//	notLost      it answers, or its connection has not given it up: nothing is done, and what was said of the worker is taken back
//	withinGrace  away for less than spec.failover.gracePeriod: nothing is written about its jobs
//	unclear      away for longer, and not known to be unreachable (401, another cluster, just being connected): no loss
//	paused       lost, and with it so many others that it is rather the hub that is cut off
//	lost         what happens to its jobs says their failover
//	elsewhere    of one job: its worker's name leads to another cluster than when it was placed
//	gone         the WorkerCluster was deleted: its jobs stay, and say what an admin can do
//	forgotten    an admin has said that nothing runs there any more
//
// and decide (job.go) what is to be done about each Dispatch:
//
//	leave        nothing: it has ended, or mirror and placement go on with it
//	hold         condition WorkerLost=True/Hold
//	answered     condition WorkerLost=True/AddressAnswers: Fenced, and something at the address of the worker has answered since
//	pausing      condition WorkerLost=True/FailoverPaused
//	fencing      condition WorkerLost=True/Fencing, until the worker's agent must have stopped the copy
//	end          the hub TrainJob's status is taken back, then the attempt ends, then a Tombstone says what the worker may still have
//	note         only the Tombstone is missing
//	pending      condition WorkerLost=True/DeletionPending
//	discard      the TrainJob is gone: the Dispatch is deleted
//	release      a Tombstone, and then the finalizer goes
//
// mirror takes WorkerLost back when the worker answers.
//
// Time. The grace period is patience: it is counted from what is on record (status.lastSeenTime), by the hub's clock. Safety is only
// Book.StoppedAt, by the monotonic clock of this process, and counts only while Contact says that the whole outage was silent. Nothing is
// polled: both functions say when to look again, and everything else that they look at wakes the key. A manager that was paused works on for
// some seconds when another one leads already, which may reach the worker. So nothing is ended but by one that certainly leads (Leading).
//
// A worker may return at any moment. What that can do to the end of an attempt is settled by locks and by order. A fenced attempt ends
// only after the Dispatch has been seen to say WorkerLost, which mirror takes back by a write before it does anything else for the job:
// one of the two writes fails. The TrainJob is read from the API server before, so that the end of a job is never taken back; if
// mirror writes it after that, of a job with failover Immediate or of a forgotten worker, placement finds it: it asks for the TrainJob before
// it places a job that was given up, and says on the Dispatch of one that is over that it has finished. The Tombstone comes after the end of the attempt: before it, a worker that
// returns in time would delete a copy that goes on.
//
// Nothing is remembered but when the first key came. Under a lock: nothing.
package failover
