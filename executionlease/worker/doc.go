// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package worker is the worker's part of the execution lease: fencing. It stops the copies of a hub that is silent for
// too long, so that the hub can run their jobs elsewhere. Package executionlease/protocol makes the decisions.
//
//	fencer, err := workerlease.Add(mgr, workerlease.Options{Identity: name, Election: &workerlease.Election{...}})
//	err = trainjob.Add(ctx, mgr, trainjob.Options{Gate: fencer.Gate, Rechecks: fencer.Rechecks()})
//
// Every replica watches ExecutionLeases, copies (TrainJobs with the label trainyard.dev/hub) and their pods, and
// answers Gate. One replica leads: it holds the Lease LeaseName, writes challenges and stops copies. The TrainJob
// controller has another Lease, so fencing also works beside a Kubeflow Trainer. A replica that loses its Lease becomes
// a standby.
//
// There are two controllers. Neither needs the manager's lease. "fencing-leases" has one key for each hub. It records
// challenges and answers. On the leader it also writes a challenge and the state of the lease each interval, in one
// patch. A leader takes over a lease by writing the next run. Each write names the version of the lease that the writer
// has read, so the writes of an agent that was replaced fail with Conflict. "fencing-copies" has one key for each copy
// with failover Fenced. It wakes when the agent may have to stop the copy. While the hub answers more often than
// every fenceAfter / 2, nothing polls its copies.
//
// Each hub has its own lease, and its silence stops only its own copies. A hub without a lease is silent.
//
// Labels and annotations of a copy name its hub and its attempt. config/admission keeps users from writing them. On a
// worker without config/admission, what a user writes counts in the user's namespace only: the tracker remembers
// attempts by hub, namespace, name and UID of the hub TrainJob. The tracker is bounded. It forgets a hub that never had
// a lease when the hub's last copy is deleted, and no metric has the name of such a hub.
//
// A stopped copy stays suspended until the hub resumes it: config/admission makes the API server refuse all others. A
// Kueue on the worker starts each suspended job that it has admitted.
//
// # What is not stopped
//
//   - An agent that does not run or cannot reach its API server stops nothing. So a hub that only knows that the
//     worker's API server does not work must not assume that copies are stopped.
//   - A pod on a node whose kubelet cannot reach the API server runs on, and counts as alive, until the node is
//     deleted.
//   - A deadline is measured by the clock of the process, which stands still while the machine is suspended.
//   - Gate does not hold back the pods of a TrainJob that a Kubeflow Trainer runs. The agent suspends a late creation
//     when it sees it.
//   - Without config/admission somebody may resume a stopped copy. The agent then deletes it, and its pods run until
//     they have ended.
//   - The agent misses a second copy of an attempt if the first copy was created and deleted while the watch was
//     broken and had to list again.
//   - If the apply of a JobSet takes longer after Gate's answer than the lease is valid, it makes pods. The agent ends
//     them when it sees them.
//
// Without the CRD (config/crd/worker) Gate is shut. The package logs that once, and waits for the CRD.
//
// The mutex tracker.mu guards the fields of tracker. All of them may be lost: a replica that knows nothing first waits
// for an answer.
package worker
