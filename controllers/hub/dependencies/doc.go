// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dependencies brings Secrets, ConfigMaps and ServiceAccounts that the pods of jobs name from the hub to a worker,
// keeps them up to date there, and deletes them when no job needs them.
//
// There is one Reconciler per connected worker. The mirror calls Bring before it creates a copy. Reconcile has the keys of
// namespaces, as names: it writes what has changed on the hub since, and deletes what nobody needs. Both do it with the
// turn, which one goroutine has at a time. Who finds it taken tries again.
//
// What may be brought: objects with the label v1alpha1.LabelPropagate, which the Dispatch of a job names, into namespaces
// with our label or with v1alpha1.LabelDependencies. A ServiceAccount goes without tokens and
// rights, and with the Secrets that it pulls images with, if these have the label.
//
// What is on record: WorkerCluster.status.dependencies names each object before it is created on the worker, until it
// has been deleted there. So neither a restart nor a worker that is away leaves anything behind, and nothing is deleted
// because a cache does not show it. An object on record stays while the Dispatch of a job that has not finished names it
// (package records), or a copy on the worker that has not finished (v1alpha1.AnnotationDependencies), of which the hub
// may have lost the record.
//
// The hub may not read on the worker what it writes, and may not patch it, as who may patch an object can learn what is in it
// (config/worker-dependencies). So the first write is a creation. If the name is taken, a replacement follows, which the worker's policy refuses for an object without the label of this hub. Nothing is
// written or deleted before the policy has been seen in force. The Reconciler remembers for ten minutes what it has written,
// so that jobs which share objects cost no requests.
//
// Watch out: contents of objects are read from the hub's API server when they are written, and are in no cache, log, Event
// or error. An API server may quote in an answer what it has refused, so nobody may show or log such answers
// (withoutContents).
//
// memory.mu guards what is remembered of the worker. No I/O happens under it.
package dependencies
