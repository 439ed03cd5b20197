// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet starts the clusters of a benchmark: a hub and workers that are etcd and an API server each (package servers), with what all
// systems need on them, and the distance between them.
//
// A worker is reached from the hub's side at Worker.URL. With a round-trip time that is a toxiproxy that delays both directions by half of
// it. The benchmark's own requests do not go that way: the stub is on the worker, and the watches that measure are to see what happens
// when it does.
package fleet
