// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package garbagecollection deletes copies on workers that nobody needs any more: finished ones after their retention, those of attempts
// that have ended, and those that a Tombstone names. What it finds of a living job that the hub has no record of it puts on record.
//
// It never deletes a copy for the mere absence of its Dispatch. After a restore of the hub from a backup there are copies that
// the hub does not know, and they may be training. The copy of a job that was deleted is deleted by mirror, which keeps the Dispatch until
// then, or by a Tombstone, which was written before the Dispatch was let go.
//
// # Parts
//
//   - Sweep runs each time a worker is connected anew, before anything may be created there (package perworker). It lists the copies at
//     the worker's API server, deletes what is outdated, and tells the Quarantine what is unknown.
//   - The reconciler, one for each worker, judges a copy by the hub's records (judge.go). Its keys are those of copies, and the names of
//     Tombstones, which have no namespace.
//   - Quarantine, one for all workers, knows the copies that the hub has no record of. Placement asks it before it places a job (Of),
//     mirror's instances are held back by it (Holds), and it writes the status of WorkerClusters.
//
// # Unknown copies
//
// The reconciler takes a copy for unknown if the caches of hub and worker say so (suspect), and makes certain with the API servers
// (investigate.go): first the hub's, then the worker's, because a record is written before its copy and goes after it. A suspect holds back
// the job of its own UID at once; when it is certain, any job of its name. It is told of a second later.
//
// Then, in this order (consider): the copy of a job that has ended goes. One of a later attempt than the hub knows is
// adopted if it is believed: the Dispatch rises to its attempt, or is created, with one write; if two workers have one,
// it is the higher attempt, and neither if they are equal. Any other stays, until an admin decides with an annotation
// on the WorkerCluster (decide.go), or somebody deletes it.
//
// # What is believed
//
// A worker that is taken over can write any attempt on a copy, and any UID of a job that it has had. A later attempt is
// believed (belief.go) if the copy was there when this process looked at the worker for the first time (whatever comes
// later this process has asked for, and has on record), if the hub can have come to that attempt since a backup, and if
// the worker that is on record for the job answers that it does not have it. Otherwise the copy stays in quarantine,
// with the reason. A job that is on record elsewhere runs on there. A copy that is known not to be the job's
// (RunsElsewhere) holds up nothing.
//
// # Finished copies
//
// A finished copy is deleted when its retention is over, and no burst of jobs goes on (pace.go): in the background if
// no pod of it is alive. If the worker's garbage collector forgets its JobSet then, that is deleted too
// (leftover.go).
//
// # What to watch out for
//
//   - A Tombstone counts for a cluster's ID. If no WorkerCluster leads to that cluster any more it stays, for all to see
//     (kubectl get tombstones), until the cluster is registered again, under whatever name, or an admin deletes it.
//   - A Dispatch that is adopted says what the job needs as placement would (Options.Needs), unless the job's runtime is not there: then
//     only its pods are counted, where they run.
//   - leftovers.mu guards since when JobSets have had no copy, burst.mu when jobs last waited.
//   - Under registry.mu are the suspects of all workers and the subscribers, under startup.mu whether the workers have been looked at. No I/O
//     is done and nobody is called back under them.
package garbagecollection
