// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package worker is the worker's part of the execution lease: it stops the copies of a hub that is silent for too long, so that the hub
// can run their jobs elsewhere. What it decides is in package executionlease/protocol.
//
//	fencer, err := workerlease.Add(mgr, workerlease.Options{Identity: name, Election: &workerlease.Election{...}})
//	err = trainjob.Add(ctx, mgr, trainjob.Options{Gate: fencer.Gate, Rechecks: fencer.Rechecks()})
//
// Every replica watches ExecutionLeases, copies (TrainJobs with the label trainyard.dev/hub) and their pods, and answers Gate. One, by
// a Lease of its own (LeaseName), writes challenges and stops copies. That lease is not the one of the TrainJob controller, so fencing
// works beside a Kubeflow Trainer too. A replica that loses it goes on as one that looks on.
//
// There are two controllers, neither of which needs the manager's lease. "fencing-leases" has one key for each hub: it keeps the books
// on challenges and answers and, if it leads, writes a challenge each interval, and what it thinks of the lease, in one patch. It takes
// over a lease by writing the next run, which is the token of agents: each write names the version that it has seen, so that one who
// was replaced without knowing it meets a conflict. "fencing-copies" has one key for each copy with failover Fenced; it wakes when such
// a copy may have to be stopped. Nothing polls a copy whose hub answers more often than every fenceAfter / 2.
//
// Each hub has its own lease, and its silence stops only its own copies. A hub without a lease is silent.
//
// Labels and annotations of a copy name its hub and its attempt. config/admission keeps users from writing them. Where
// it is not applied, what users write counts in their own namespace only: the book remembers attempts by hub, namespace,
// name and UID of the hub TrainJob. Its memory is bounded. It forgets a hub that never had a lease with the hub's
// copies, and no metric has the name of such a hub.
//
// # What is not stopped
//
//   - Who cannot reach the API server of its own cluster can stop nothing, and neither can an agent that does not run. A hub must
//     not take copies for stopped if all that it knows is that the worker's API server does not work.
//   - A pod on a node whose kubelet is cut off from the API server lives on, and is seen as alive, until the node is deleted.
//   - Time is that of the process. It stands still while the machine is suspended.
//   - The pods of a TrainJob that a Kubeflow Trainer runs are not held back by Gate. A late creation is suspended when it is seen.
//   - A second copy of an attempt whose first one came and went while this replica's watch of TrainJobs was broken, and had to list anew.
//   - An apply of a JobSet that was on its way from Gate's answer on for longer than the lease makes pods that are ended when they are
//     seen.
//
// Without the CRD (config/crd/worker) nothing is done but to say so once and to look for it, and Gate is shut.
//
// Under a lock: the fields of book, under book.mu. All of it may be lost: a replica that knows nothing asks for an answer first.
package worker
