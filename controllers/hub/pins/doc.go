// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pins deletes the pinned runtimes of one worker that no copy names any more. Package mirror makes them, for jobs
// whose policy says runtime: Pin.
//
// There is one Reconciler per connected worker. Its keys are namespaces, as names. The worker's objects say what there is
// (v1alpha1.LabelPinned), so nothing has to be on record for them.
//
// # When a pinned runtime goes
//
// It has been of no use for unneededFor: no Dispatch of a job that runs or is about to run on the worker was counted with the
// hub's runtime from which it was made, and no TrainJob of the namespace names it, whether it has ended or not, and whoever
// has created it. Caches say that first, so that a runtime in use costs no request. What is to be deleted, both API servers
// are asked about: absence in a cache alone deletes nothing.
//
// A copy may be under way that no API server shows. Who creates one has called Hold before it has looked for the runtime, and
// its Dispatch is on the API server before. So a deletion marks the runtime first, then looks for Dispatches, and leaves the
// runtime if it is held. An earlier leader may have sent a copy too: its Dispatches are in the caches after records.StartLag.
//
// Without the right to delete (config/worker-pins) the runtimes stay, and the worker is asked again after namedCheck at the earliest.
//
// # Locks
//
// Reconciler.mu guards what is held and what is being deleted. No I/O happens under it.
package pins
