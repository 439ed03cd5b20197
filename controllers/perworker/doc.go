// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package perworker runs the controllers of which every connected worker has its own instance, and brings them the hub's
// events.
//
// A key is the namespace and name that a hub TrainJob, its Dispatch and its copy share. Each instance has its own queue and its
// own goroutines: a worker that hangs fills its own queue only. The hub's events are watched once, by the Set, and go to the
// one or two workers that a Dispatch names, so that an event costs the same with two workers and with a thousand.
package perworker
