// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package perworker runs the controllers of which every connected worker has its own instance, and gives them the hub's
// events.
//
// A key is the namespace and name of a job, its Dispatch and its copy. Each instance has its own queue and its own
// goroutines: a worker that hangs fills only its own queue. The Set watches the hub's events once. It gives each event
// to the one or two workers that the Dispatch names. So an event costs the same with two workers and with a thousand.
//
// After each new connection a sweeper sweeps the worker (Kind.Sweep) in a goroutine of its own, and retries until the
// sweep succeeds. Then it enqueues the worker's live keys. Before that a controller with AfterSweep can create nothing
// there: from the loss of the connection until the next sweep, it gets only keys whose copy belongs to the current
// attempt. While the worker refuses the sweep (Kind.Refused), the controller gets all keys. It then creates nothing,
// and ends the attempts that were placed there.
//
// Set.mu guards the workers that have joined. sweeper.mu guards for which connection a worker has been swept.
package perworker
