// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package failover decides what happens to the jobs of a lost worker, and to deletions that wait for that worker.
//
// A key is the name of a WorkerCluster. Reconcile reads it, its connection, the other WorkerClusters and the live
// Dispatches. Then two pure functions decide. The first is stateAt (worker.go). It returns the state of the worker:
//
//	notLost      it answers, or its connection has not given it up: conditions about a loss are taken back
//	withinGrace  it is away for less than spec.failover.gracePeriod: nothing is written about its jobs
//	unclear      it is away for longer, but not known to be unreachable (401, another cluster, connecting): no loss
//	paused       it is lost together with so many others that the hub seems to be cut off (pause.go)
//	lost         the failover of each job says what happens to the job
//	elsewhere    for one job: the worker's name now leads to another cluster than the cluster of the job
//	gone         the WorkerCluster was deleted: its jobs stay, and their Dispatches say what an admin can do
//	forgotten    an admin has said that nothing runs there any more
//
// The second is decide (job.go). It returns what to do about one Dispatch:
//
//	leave        nothing: the job has ended, or mirror and placement continue with it
//	hold         write the condition WorkerLost=True/Hold
//	answered     write WorkerLost=True/AddressAnswers: something answers at the address of a worker with a Fenced job
//	pausing      write WorkerLost=True/FailoverPaused
//	fencing      write WorkerLost=True/Fencing, until the worker's agent must have stopped the copy
//	end          remove the copy's status from the hub TrainJob, end the attempt, then write a Tombstone for the copy
//	note         write the Tombstone that is missing
//	pending      write WorkerLost=True/DeletionPending
//	discard      delete the Dispatch, because its TrainJob is gone
//	release      write a Tombstone, then remove the finalizer
//
// When the worker answers, mirror takes WorkerLost back.
//
// Time: the grace period counts from status.lastSeenTime, by the hub's clock. It is only patience. Safety comes from
// Agents.StoppedAt alone, by this process's monotonic clock, and only if Contact says that the whole outage was silent.
// An answer that was seen once stays the reason of WorkerLost until the worker answers again, in a pause too, because
// the next process knows of it only by that. Nothing is polled: both functions return when to look again, and a change
// of what they read wakes the key.
//
// A manager that was paused works on for some seconds while another manager already leads. What it knows of the worker
// is worth nothing: the new leader may reach the worker, answer its agent and place jobs there. So the hub's client
// sends writes only while this process certainly leads (remote.OnlyLeaderWrites). A manager that begins to lead after
// that check writes to the Dispatch before it lets anything run there.
//
// A worker may return at any moment. Locks and the order of writes keep that safe. A fenced attempt ends only after
// this process has read WorkerLost in the Dispatch. Mirror takes WorkerLost back with a write before it does anything
// else for the job, so one of the two writes fails. Before an attempt ends, the TrainJob is read from the API server,
// so the end of a job is never taken back. With failover Immediate, or a forgotten worker, mirror may write the end of
// a job after that. Then placement finds it: placement reads the TrainJob before it places a job that was given up, and
// marks the Dispatch as finished if the job has ended. The Tombstone is written after the end of the attempt. Before
// that end, a Tombstone would let the manager delete a copy that goes on when its worker returns in time.
//
// The controller keeps no state but the time of its first reconcile. No field needs a lock.
package failover
