// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package perworker runs the controllers of which every connected worker has its own instance, and brings them the hub's
// events.
//
// A key is the namespace and name that a hub TrainJob, its Dispatch and its copy share. Each instance has its own queue and its
// own goroutines: a worker that hangs fills its own queue only. The hub's events are watched once, by the Set, and go to the
// one or two workers that a Dispatch names, so that an event costs the same with two workers and with a thousand.
//
// Each time that a worker is connected anew it is swept (Kind.Sweep), in a goroutine of its own, again and again until
// it works, and then its live keys are brought. A controller with AfterSweep can create nothing there before: from the
// moment in which the connection was lost until the sweep after it, it gets only keys whose copy is that of the current
// attempt. While the worker refuses to be swept (Kind.Refused) it gets all keys, creates nothing, and gives back what
// was placed there.
//
// Under Set.mu are the workers that have joined, under sweeper.mu the time of connection in which a worker has been swept.
package perworker
