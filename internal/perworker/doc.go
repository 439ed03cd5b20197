// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package perworker runs the controllers of which every connected worker has its own instance, and gives them the hub's
// events.
//
// A key is the namespace and name of a job, its Dispatch and its copy. Each instance has its own queue, and starts its own
// goroutines for keys: a worker that hangs fills only its own queue, and a worker without jobs costs little. The Set watches
// the hub's events once. It gives each event to the one or two workers that the Dispatch names. So an event costs the same
// with two workers and with a thousand.
//
// After each new connection a sweeper sweeps the worker (Kind.Sweep) in a goroutine of its own, and retries until the
// sweep succeeds. Then it enqueues the worker's live keys. Until then a controller must create nothing there: it gets a
// function that says so (Kind.New). If the worker refuses the sweep, its keys come once before.
//
// Set.mu guards the workers that have joined, queue.mu the keys that wait for a delay, and sweeper.mu for which connection a
// worker has been swept.
package perworker
