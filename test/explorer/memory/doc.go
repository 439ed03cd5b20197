// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package memory is an API server in memory that does the same each time: no goroutines, no clock of its own, nothing drawn, and lists in
// the order of their keys. It has what the controllers rely on: UIDs, resourceVersions, generations, optimistic locks, the status as
// a subresource, JSON merge patches, finalizers, foreground deletion, preconditions, and the grace of pods.
//
// A Server has the truth. A View is a cache of one kind, as a watch fills it: it stays behind until Next is called. A Client is a
// client.Client that reads from views, or from the server, and hands each request that goes over the network to a Line, which decides
// what becomes of it.
//
// The benchmark's package fakeservers has API servers in memory too. They answer the manager's own client over https, in real
// time, with goroutines and watches, and keep JSON. A Server here is called directly, is never concurrent, takes the time from the
// explorer and shares its Go objects: so the explorer makes thousands of steps a second, and the same steps again.
//
// There are no schemas, no admission and no field managers. Who owns what is collected by nobody: that is the user's of this package.
package memory
