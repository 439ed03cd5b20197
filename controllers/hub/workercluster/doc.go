// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workercluster keeps a connection for every WorkerCluster and says in its status what is there.
//
// Reconcile loads the credentials, hands them to the remote.Fleet (which never blocks), and computes the status from what the
// connection knows (status.go) and from its inventory (capacity.go). The cluster ID that is found at the first contact is
// written to the status before the connection is used: the Fleet connects only with a pinned ID. A worker whose Ready condition
// is True is joined to the per-worker controllers; one that is removed or must not be used leaves them.
//
// AgentReady says whether the worker's agent answers (agent.go), as it was when the worker was last seen.
//
// Changes of the connection's state are written at once. What changes with every pod (free GPUs, jobs) is written at most once
// in Options.CapacityInterval.
package workercluster
