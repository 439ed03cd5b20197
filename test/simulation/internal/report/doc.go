// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report says what happened to the jobs and GPUs of simulations: Summarize one run, Combine the runs of several
// seeds, and write them as tables, JSON or CSV.
//
// # The measures
//
// Utilisation is the GPU time in which jobs ran, with what they had to do again after a preemption, as a share of all
// GPU time of the window. Held is the share that gangs had while some of their pods had no node.
//
// A job's wait is all the time from its submission to its end in which it did not run: on the waiting list, on a worker
// without nodes for all its pods, and again after a preemption. Only jobs that were submitted in the window count,
// whenever they ended.
//
// Fragmentation is the share of the free GPU time that was on nodes of which some GPUs were in use, where a pod that
// needs a whole node cannot have it.
package report
