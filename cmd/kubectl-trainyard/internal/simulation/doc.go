// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simulation decides where TrainJobs would go, with the code that the hub's manager decides with, and writes nothing.
//
//	outcome, err := simulation.Run(ctx, objects.Over(hub), objects, now)
//
// One job is decided on after the other, and each takes its room, but as if no other job waited: what is before them in line, and
// reservations and preemptions, make no difference here. Between workers of equal score a job's UID decides, which a job does not have
// before it is created; a note says so where it matters.
//
//	read.go      what there is: workers, policies, priority classes, from files and the hub
//	priority.go  the priority of a job
//	decide.go    the decisions
//	check.go     what is wrong with the files
//	print.go     what people read of them
package simulation
