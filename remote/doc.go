// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package remote keeps live connections to workers. Each worker has its own clients, caches, health, identity and rate
// limiter. The package does not know what TrainJobs mean.
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
// Each worker has a goroutine that observes, decides and acts (loop.go, decide.go). Its probe is one GET of the
// kube-system namespace. The answer says whether the worker lives and which cluster it is. A worker is Connected when
// it answers with the pinned cluster ID, serves TrainJobs and JobSets, forbids nothing that the caches need, and the
// caches are filled. Without a pin a worker never becomes Connected: the caller writes the cluster ID from the status
// to an API object, and calls Ensure with it. So the pin is on record before anybody writes to the worker.
//
// 401 and 403 are answers of a living worker. They lead to CredentialsInvalid, never to Unreachable, and start no
// failover. A worker is Unreachable only after FailureThreshold failed probes. The end of a watch means nothing.
//
// # Silence
//
// Unreachable says nothing about the worker's jobs. Status.SilentSince says that nothing at all answers at its address.
// If something does, such as a load balancer without a backend, the API server may be down while pods run on and the
// agent can do nothing. Only a new connection can show silence (dial.go, silence.go), so the loop cuts the old ones
// when a worker becomes Unreachable. A powered-off control plane looks like a cut network.
//
// # Identity
//
// All requests go through an exchange (exchange.go). Its gate is open to callers only while the worker is Connected, so
// no client can write to another worker. When the last TCP connection has closed, another cluster may take the address.
// So a probe makes the next connection, and nothing else is sent until the probe is answered.
//
// # Writes
//
// No request that changes something is sent, to a worker or by OnlyLeaderWrites to the hub, unless this process
// certainly leads (writes.go). Options says how long each kind of request may take: the answer to a creation is awaited
// for longer than an API server works on it.
//
// # Rotation and outages
//
// New credentials for the same host replace the transport under the clients and caches. Running watches keep their old
// credentials, and the API server ends such watches within minutes. The caches continue an ended watch where it
// stopped, after an outage too: to the reflectors an outage is a watch that begins slowly. So neither new credentials
// nor an outage cause a list, unless the worker says that it has forgotten the resource version.
//
// # Caches
//
// A worker has one informer for each kind (informer.go). The informers call event handlers in the goroutines that read
// the watches, so that an idle worker costs little: handlers must not block, and must not remove handlers.
//
// # Capacity
//
// Package capacity counts what a worker has and what its pods use. Cluster.Inventory comes from the worker's nodes and
// pods or, with CapacityFrom(Report), from its CapacityReport. Then the hub caches no pods, and clients read pods from
// the API server. A worker without a report is Connected too. Status.Capacity then says that nothing should be placed
// there.
//
// # What to watch out for
//
//   - A Cluster belongs to one host and one pin. Another host or pin makes another Cluster. Done is closed with the old
//     one.
//   - The caches of a worker that is not Connected hold old objects. Status.LastSeen says how old.
//   - The cache has few kinds (caches.go). Client fails for other kinds. APIReader reads every kind live.
//   - JobSets and the hub's ExecutionLease are optional: a worker that forbids reading them is Connected too. Until
//     they are listed, Get returns ErrNotListed at once. JobSets are cached unstructured, and stripped (strip.go).
//
// # Locks
//
// Fleet.mu guards the set of workers, Cluster.mu a worker's status and target, exchange.mu the route of requests,
// pool.mu the open connections, silence.mu what has answered, subscription.mu the changes to report, and meter.mu
// whether series may be written. informer.mu guards the handlers of an informer. The fields under a lock are in a struct
// named locked. Fleet.mu is taken before the other locks, and the others one at a time. Code under a lock does no I/O and
// calls no callbacks. Only the handlers of an informer are called under a lock, informer.mu.
package remote
