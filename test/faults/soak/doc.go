// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package soak breaks everything at random, under load, for as long as one likes:
//
//	go test ./soak -run TestSoak -duration 30m -seed 42
//
// What breaks when, and what jobs come, follows from the seed alone (plan.go), so a run can be repeated; what comes of it also depends on
// the machine. Each worker, and the hub with its managers, is a lane: one fault after the other, with pauses. The lanes know nothing of each
// other, so two workers and the hub may be broken at the same time. What the documentation excludes is not done: that the agents of a worker
// are all dead, or that its API server is down, while it is cut off.
//
// When the time is over all faults end, and every job has to end. Then, and while it runs, all is checked that package faults checks. The
// report says how many jobs and faults there were, and how long the longest recovery took.
package soak
