// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package memory is a deterministic API server in memory: it has no goroutines, no clock of its own and no random
// numbers, and it lists objects in the order of their keys. It has what the controllers rely on: UIDs,
// resourceVersions, generations, optimistic locks, the status subresource, JSON merge patches, finalizers, foreground
// deletion, preconditions, and the grace period of pods.
//
// A Server has the objects. A View is a cache of one kind, as a watch fills it: it takes in a change only when Next is
// called. A Client is a client.Client that reads from views or from the server. It passes each request that crosses the
// network to a Line, which decides what happens to the request.
//
// The benchmark's package fakeservers also has API servers in memory. They answer the manager's own client over https,
// in real time, with goroutines and watches, and store JSON. A Server is called directly, is never used concurrently,
// takes the time from the explorer, and shares its Go objects. So the explorer makes thousands of steps a second, and
// can repeat them exactly.
//
// There are no schemas, no admission, no field managers and no garbage collector of owned objects. The user of this
// package deletes owned objects.
package memory
