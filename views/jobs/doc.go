// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package jobs describes TrainJobs by their Dispatches: their demand (Needs), and their order in the waiting list
// (NewWaitingList).
//
// The order is the order of the hub's manager: priority, then creation of the TrainJob, then its UID. A job that does
// not wait for room, but for instance for its runtime, has no position: it holds no other job back.
package jobs
