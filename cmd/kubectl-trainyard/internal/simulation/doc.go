// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simulation decides where TrainJobs would run, with the code of the hub's manager. It writes nothing.
//
//	outcome, err := simulation.Run(ctx, objects.Over(hub), objects, now)
//
// It decides on jobs one by one. A placed job takes its room. Other waiting jobs, reservations and preemption do not
// count. Between workers of equal score a job's UID decides. A new job has no UID yet: a note says so where it matters.
//
//	read.go      workers, policies and priority classes, from files and the hub
//	priority.go  the priority of a job
//	decide.go    the decisions
//	check.go     faults of the files
//	print.go     the output for people
package simulation
