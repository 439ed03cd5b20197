// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package joblogs prints the logs of a TrainJob for a user, or says why there are none.
//
//	err := joblogs.Print(ctx, clients, streams, joblogs.Options{Job: name, Tail: -1, Follow: true})
//
// A TrainJob has steps (replicated jobs of its JobSet), a step has nodes (one pod each, by completion index), and a node has tries:
// a Job replaces a pod that has failed, a JobSet replaces all of them, and a kubelet restarts a container in its pod. A log is that
// of one run of one container.
//
// What is known of a job at one moment is a snapshot. What follows from it is decided by functions that ask nobody: which pod
// (choose.go), which step (steps.go), why there is no log (explain.go), what to do next (decide.go). Without Options.Follow there is
// one snapshot, read from the API server; with it, each change of the TrainJob or of a pod makes a new one (watch.go), and a
// goroutine for each node (follow.go) prints what the snapshot has.
//
// A stream that ends while its container runs was cut off, by a restart of the API server for instance. It is opened again, and
// what was printed is left out by the times of the lines, so they are always asked for and taken off again (stamp.go).
//
// Watch out:
//
//   - The JobSet is read where the user may read it, and not needed: without it, it is not known how many nodes a step has and
//     what it waits for.
//   - For a pod that no node has, the API server answers with an empty log and no error. So the pod is looked at first.
//
// Under locks: output.mu guards what is written to either stream and what was said last; watcher.mu the channel of changes.
package joblogs
