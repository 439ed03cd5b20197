// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package remote keeps live connections to workers: clients, caches, health, identity and one limiter for each. It knows
// clusters; what TrainJobs mean is not its business.
//
// Use:
//
//	fleet, err := remote.NewFleet(ctx, remote.Options{HubID: hubID, Logger: log})
//	fleet.Subscribe(func(name v1alpha1.ClusterName, status remote.Status) { /* reconcile that WorkerCluster */ })
//	fleet.Ensure("gpu-east", remote.Credentials{Config: config, Fingerprint: fingerprint}, pinned)
//
//	cluster, ok := fleet.Get("gpu-east")
//	client, err := cluster.Client() // ErrNotConnected: wait for the subscription, do not retry
//
// # States
//
// Each worker has a goroutine that observes, decides and acts (loop.go, decide.go). Its probe is one GET of the kube-system
// namespace: whether the worker lives and who it is, in one answer. Connected means that the probe is answered, that the
// answer has the pinned cluster ID, that TrainJobs and JobSets are served, that nothing the caches need is forbidden, and that
// they have been filled. Without a pin a worker never becomes Connected: the caller writes the cluster ID that the status shows
// to where it lasts, and calls Ensure with it. So a decision about identity is recorded before anything is written.
//
// 401 and 403 are answers of a worker that is there: they make CredentialsInvalid, never Unreachable, and must not start a
// failover. A probe that fails makes Unreachable only after FailureThreshold of them. The end of a watch means nothing.
//
// # Silence
//
// That a worker is Unreachable says nothing about its jobs. Status.SilentSince says whether anything at all answers at its address: if
// something does, as a load balancer without a backend, the worker's API server may be down while its pods run on and its agent can do
// nothing. It is known when connections are made (dial.go, silence.go), so those of before are cut when a worker becomes Unreachable. A
// control plane on one machine that loses power is as silent as a network that is cut.
//
// # Identity
//
// All requests go through an exchange (exchange.go) whose gate is open to callers only while the worker is Connected, so that
// a client that somebody kept can write to no worker that is not. When the last TCP connection has gone, somebody else may
// have taken the address: the next connection is made by a probe, and nothing else is sent until it has been answered.
//
// # Rotation and outages
//
// Other credentials for the same host replace the transport under the clients and caches. Watches that run go on with the
// credentials with which they began, which the API server ends in minutes; watches that end are begun again where they were.
// The same holds for outages: to the reflectors they are a watch that takes long to begin. That is why neither costs a list
// (unless the worker has forgotten the resource version, and says so).
//
// # Capacity
//
// Package capacity counts what a worker has and what its pods use. Cluster.Inventory comes from the worker's nodes and pods or, with
// CapacityFrom(Report), from its CapacityReport: then the hub holds no pods, and clients read pods from the worker's API server. A worker
// without a report is Connected all the same, and the jobs there are looked after; Status.Capacity says that nothing should be placed
// there.
//
// # What to watch out for
//
//   - A Cluster is of one host and one pin. Another host or pin makes another Cluster; Done says when the old one is over.
//   - The caches of a worker that is not Connected hold what was last seen. Status.LastSeen says when that was.
//   - The cache has few kinds (caches.go); reading another one through Client is an error, and APIReader reads it live.
//   - JobSets and the hub's ExecutionLease are optional: a worker that forbids to read them is Connected all the same. Until they have
//     been listed, getting one is ErrNotListed at once. JobSets are cached unstructured, and stripped (strip.go).
//
// # Locks
//
// Fleet.mu guards the set of workers, Cluster.mu a worker's status and target, exchange.mu the route of requests, pool.mu the
// set of open connections, silence.mu what was heard, subscription.mu what is to be told, meter.mu whether series may be written. What a lock guards is in a
// struct named locked. Fleet.mu is taken before the others, and those are taken one at a time. No I/O is done and nobody is called
// back under any of them.
package remote
