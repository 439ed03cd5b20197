// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package soak causes random faults under load, for any time:
//
//	go test ./soak -run TestSoak -duration 30m -seed 42
//
// With -short it takes 45 s and a seed with many kinds of faults: CI runs that.
//
// The seed alone decides the faults with their times, and the jobs (plan.go). So a run can be repeated, but its result
// also depends on the machine. What a fault does is there, too. Each worker is a lane, and so is the hub with its
// managers. A lane has one fault after the other, with pauses. Lanes do not know each other, so two workers and the hub
// may fail at the same time. The soak does not do what the documentation excludes: it does not kill all agents of a
// worker, or its API server, while the worker is cut off.
//
// A new kind of fault changes what each seed draws. TestShortPlan then asks for another seed for CI.
//
// When the time is over, all faults end, and every job has to end. Then, and during the run, the soak checks everything
// that package faults checks. The report counts jobs and faults, and has the time of the longest recovery.
package soak
