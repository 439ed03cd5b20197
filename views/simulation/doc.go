// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simulation decides where TrainJobs would run, with the code of the hub's manager. It writes nothing.
//
//	files, err := simulation.Parse("job.yaml", text)
//	outcome, err := simulation.Run(ctx, hub, files, now)
//
// Parse is strict: what an API server would refuse or ignore in an object is a fault that names the file, the object and
// the field. The objects of the files hide those of the hub that have the same name.
//
// It decides on jobs one by one. A placed job takes its room. Other waiting jobs, reservations and preemption do not
// count. No worker is asked what its admission makes of pods: the explanation says so where no node takes them as they
// are. Between workers of equal score a job's UID decides. A new job has no UID yet: a note says so where it matters.
//
//	files.go   the objects in texts; package manifests reads files and URLs
//	layers.go  a client that reads the files and the hub
//	check.go   faults of the files' objects, and defaults
//	read.go    workers, policies and priority classes
//	decide.go  the decisions, and what people are told
package simulation
