// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package queue keeps the jobs that wait for a worker, in order, and decides on them when something changes that could help.
//
// Stand puts a job in line, Leave takes it out, and Pass decides: with package dispatch, on the workers of a Fleet, which it tells
// what it has placed. Then Answer says of each job that still waits what it waits for. It is pure: what it knows it was told, and
// time is an argument. The manager drives it with real workers, test/simulation with imagined ones.
//
// # Order
//
// Jobs are looked at by priority, then age, then UID. A job that does not fit lets those behind it pass, unless its policy is
// StrictFIFO: then all jobs of the policy behind it wait too. Jobs that wait for something else than room hold nobody, and neither do
// jobs that would not fit if all workers were empty.
//
// A job that has been passed for the time that its policy says gets a reservation: one worker, on which it would fit if no job ran
// there, shows jobs behind it only what it does not need (see dispatch.Nodes.Hold). There is one reservation to a worker.
//
// A job whose policy allows preemption and that fits nowhere takes the room of jobs of lower priority (see dispatch.Preempt): it gets
// a reservation on their worker, and Pass names them. It takes no others while they are going.
//
// # Cost
//
// Jobs of equal demand under equal rules are a class, of which only the first is asked about: what does not help it helps none. A
// pass asks about classes that are new, and of the others about those only that need no more of a resource (GPUs, where they need any)
// than a worker which has changed has free, and about that worker first. So it costs neither for the jobs behind the first of their
// class nor for those that are too large for what has become free, and for workers that have not changed only where a job is placed.
package queue
