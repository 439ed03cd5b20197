// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package drift finds out how the runtimes of workers differ from the hub's runtimes of the same kind, namespace and
// name. Every connected worker has its own instance.
//
// # How
//
// A digest of the hub's spec cannot be compared with an object of a worker: the worker's API server and its webhooks fill
// in defaults and change fields. So the worker itself is asked what it would make of the hub's spec: a dry run of a patch
// replaces the spec of its runtime, strictly. If the answer has the generation that the runtime has, nothing differs.
// Only otherwise the runtime is read, and compared field by field with the answer.
//
// # When
//
// A runtime that is on both sides is compared once for each version of either side, whatever jobs come. The hub's
// spec is read once for all workers. A process that starts compares each runtime once: States keeps the answers in
// memory only. A limiter of the process spaces the dry runs, and a worker is asked one question at a time. A runtime
// that changes again and again is compared less and less often, down to once in 30 s. A worker that is away is asked
// when it is back, and only what has changed since. What a worker refuses is asked again after an hour, because its
// CRD or the hub's rights may have changed.
//
// # What is kept
//
// Of a runtime that may make other pods than the hub's, the spec is kept, so that placement can count these pods: 64 KiB of
// JSON of a runtime, and 1 MiB of a worker at most. Beyond that the hub's runtime counts. A worker chooses these specs, so
// whoever reads one must expect anything.
//
// # Who knows
//
// States has what is known of each worker. Controller workercluster writes it into the status, and placement decides by
// it.
//
// # Locks
//
// States.mu guards what is known, specs.mu the hub's specs. Nobody does I/O under them.
package drift
