// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fakeservers plays many workers in one process, for benchmarks for which real API servers (500 MB each) are
// too heavy. Each worker is an https server of its own on 127.0.0.1 that has the part of a worker's API server that the
// manager uses:
//
//	fleet, err := fakeservers.Start(fakeservers.Options{Workers: 20, Nodes: 10, GPUs: 8, RunFor: time.Second})
//	defer fleet.Close()
//	kubeconfig, err := fleet.Workers[0].Kubeconfig()
//	fleet.Workers[0].Hang()   // It accepts connections and answers nothing, as a process that is stopped.
//	fleet.Workers[0].Resume()
//
// It has get, list, watch (resource versions, bookmarks, streamed lists, selectors), create, update, patch and delete
// (preconditions, finalizers, foreground deletion) of the kinds in object.go, as JSON and with metadata only, and
// discovery, version and the TrainJobs' OpenAPI document. With RunFor it also plays the TrainJob controller and the
// garbage collector: a copy is Complete RunFor after it was created.
//
// TestConformance sends the same requests to a fake and to a real API server and compares the answers. What is not
// there, on purpose:
//
//   - Schemas: only unknown fields of a TrainJob's spec are found. Nothing else is validated, and nothing has defaults.
//   - Field managers: an apply is a merge patch that creates what is missing, and there are no managedFields.
//   - Authorization: one token, which may do everything. Another token gets 401.
//   - JSON patches and strategic merge patches (415), deletion of collections (405), protobuf in answers, dry runs, and
//     webhooks.
//
// The tests of controllers use real API servers (package servers). This package is for what three API servers cannot
// show.
//
// # Locks
//
// store.mu guards the objects of a worker and who watches them, watcher.mu what a watch has to say, gate.mu whether a
// worker hangs. store.mu is taken before watcher.mu; no I/O is done under any of them.
package fakeservers
