// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusterprofile makes WorkerClusters of the ClusterProfiles of a cluster inventory
// (multicluster.x-k8s.io, KEP-4322). It is off unless the manager has --cluster-profiles.
//
// A ClusterProfile of the one namespace that is read becomes a WorkerCluster of the same name. The controller writes of
// it, after its creation: the labels that come from the profile; and spec.unschedulable, to cordon a worker whose
// profile is gone. Everything else of a WorkerCluster is the admin's. A WorkerCluster that does not name the profile in
// its annotation AnnotationClusterProfile is never written. An owner reference could not say that: a cluster-scoped
// object cannot have a namespaced owner, and nothing is to be deleted with a profile.
//
// Nothing that an inventory says stops a job. If a profile is gone, the manager cordons its worker. The manager ignores
// what the status of a profile says about the health of its cluster, because its own probe decides. A hub whose
// inventory cannot be read, or has no ClusterProfiles as a kind, goes on with the WorkerClusters that it has: Inventory
// has a cache of its own.
//
// Locks: none. The controller keeps no state.
package clusterprofile
