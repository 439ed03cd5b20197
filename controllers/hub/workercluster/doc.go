// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workercluster keeps a connection for every WorkerCluster, says whether the worker is Ready, and writes into
// the status what the worker has. Of two WorkerClusters that lead to one cluster it calls one Duplicate.
//
// Reconcile loads the credentials, passes them to the remote.Fleet (which never blocks), and computes the status from
// the connection's state (status.go) and from its inventory (capacity.go). The Fleet uses a connection only with a
// pinned cluster ID. So the cluster ID of the first contact is written to the status before that. A worker whose Ready
// condition is True is joined to the per-worker controllers. A worker that is removed or must not be used leaves them.
//
// AgentReady says whether the worker's agent answers (status.go), as of when the worker was last seen.
//
// A change of the connection's state is written at once, free GPUs and jobs at most once in Options.CapacityInterval.
package workercluster
