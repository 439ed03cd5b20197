// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package jobs knows what is to be said of TrainJobs by their Dispatches: what they need (Needs), and in which order those are
// looked at that wait (NewLine).
//
// The order is that of the hub's manager: priority, then the creation of the TrainJob, then its UID. A job that waits for something
// else than room, such as its runtime, has no place in it: it holds nobody back.
package jobs
