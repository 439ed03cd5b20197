// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package garbagecollection deletes copies on workers that nobody needs any more: finished copies after their
// retention, copies of attempts that have ended, and copies that a Tombstone names. If it finds a copy of a living job
// without a record, it puts the copy on record.
//
// It never deletes a copy only because the copy has no Dispatch. After a restore of the hub from a backup, workers have
// copies that the hub does not know and that may be training. When a job is deleted, mirror deletes the copy and keeps
// the Dispatch until then. Or mirror writes a Tombstone before it lets the Dispatch go.
//
// # Parts
//
//   - Sweep runs each time a worker is connected, before anything may be created there (package perworker). It lists
//     the copies at the worker's API server, deletes the outdated copies, and tells the Quarantine about the unknown
//     copies.
//   - The Collector, one for each worker, does what judgement.Of says about a TrainJob, for the controller of the
//     worker's copies (package mirror). It leaves the work to its parts: retirement (finished copies), leftovers
//     (JobSets without a copy), execution (Tombstones), attempts (the count of attempts), and investigator (unknown
//     copies). The investigator has trust (does the manager believe an attempt?), adopter and decisions (of an admin).
//   - Quarantine, one for all workers, knows the copies that the hub has no record of. Placement asks it before it
//     places a job (Of). The Collectors ask it before a first copy is created (Holds). It writes the status of
//     WorkerClusters.
//
// # Unknown copies
//
// A copy counts as unknown if the caches of hub and worker show no record of it. The investigator then asks the API
// servers (investigate.go): first the hub's, then the worker's, because a record is written before its copy and deleted
// after it. Until it has asked them, only the job with the origin UID of the copy has to wait. Once it is certain that
// the copy is unknown, each job of its name has to wait, if the copy was there when this process first looked at the
// worker. The Quarantine reports a copy one second later.
//
// Then it is judged again by what the API servers say:
//
//   - It deletes the copy of a job that has ended.
//   - It adopts a copy whose attempt is later than the hub knows, if it believes that attempt. One write creates the
//     Dispatch, or raises it to that attempt. If two workers have such copies, it adopts the higher attempt. If the
//     attempts are equal, it adopts neither.
//   - It leaves any other copy alone until an admin decides with an annotation on the WorkerCluster (admin.go), or
//     until somebody deletes the copy.
//
// # What is believed
//
// A worker that is taken over can write any attempt on a copy, and the UID of any job that it has had. So the manager
// believes a later attempt (trust.go) only if:
//
//   - this process found the copy when it looked at the worker for the first time: this process has requested all later
//     copies itself, and has them on record;
//   - the hub can have counted to that attempt since a backup;
//   - the worker on record for the job answers that it does not have the job, nor anything of its copy that could run.
//
// Otherwise the copy stays in quarantine, with the reason. A job that is on record elsewhere goes on running there. A
// copy that is known not to be the job's copy (RunsElsewhere) delays nothing.
//
// # Finished copies
//
// The manager deletes a finished copy when its retention is over and no burst of jobs is under way (pace.go), in the
// background if no pod of the copy is alive. If the worker's garbage collector forgets the copy's JobSet, the manager
// deletes the JobSet too (jobsets.go).
//
// # What to watch out for
//
//   - A Tombstone is for the ID of a cluster. If no WorkerCluster leads to that cluster any more, the Tombstone stays
//     visible (kubectl get tombstones) until the cluster is registered again, under any name, or an admin deletes the
//     Tombstone.
//   - The Dispatch of an adopted copy says what the job needs, as placement would say it (Options.Demand). If the job's
//     runtime is missing, the manager counts only the job's pods, where they run.
//   - leftovers.mu guards since when JobSets have had no copy. burst.mu guards when jobs last waited.
//   - registry.mu guards the unknown copies of all workers and the subscribers. startup.mu guards whether this process has
//     looked at the workers. No I/O and no callback happens under these locks.
package garbagecollection
