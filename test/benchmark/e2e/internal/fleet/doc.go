// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet starts the clusters of a benchmark: a hub and workers that are etcd and an API server each (package
// servers), with what all systems need on them, and the distance between them. Workers may have worker-agents.
//
// A worker is reached from the hub's side at Worker.URL. If the options have a round-trip time, that is the URL of a
// toxiproxy that delays both directions by half of it. The benchmark's own requests do not use the toxiproxy: the stub
// is on the worker, and the watches that measure must see changes without delay.
package fleet
