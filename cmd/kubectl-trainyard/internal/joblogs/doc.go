// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package joblogs prints the logs of a TrainJob for a user, or says why there are none.
//
//	err := joblogs.Print(ctx, clients, streams, joblogs.Options{Job: name, Tail: -1, Follow: true})
//
// A TrainJob has steps (replicated jobs of its JobSet). A step has nodes (one pod each, by completion index). A node
// has tries: a Job replaces a failed pod, a JobSet replaces all pods, and a kubelet restarts a container in its pod. A
// log belongs to one run of one container.
//
// A snapshot is what is known of a job at one moment. Functions without I/O decide from it: which pod (choose.go),
// which run of its container (once.go, or decide.go with Options.Follow), which step (steps.go), why there is no log
// (explain.go), and what to do next (decide.go). Without Options.Follow there is one snapshot, read from the API server.
// With it, each change of the TrainJob or of a pod makes a new snapshot (watch.go), and a goroutine for each node
// (follow.go) prints from it.
//
// Find says where the pods of a job are, for commands that do something else with them (place.go).
//
// If a stream ends while its container runs, it was cut off, for instance by a restart of the API server. It is opened
// again, and printed lines are skipped by their times. So the streams always have times, which are removed (stamp.go).
//
// Watch out:
//
//   - The pods of a job that this cluster does not run are on a worker. They are read through the gateway of the hub
//     (Clients.Gateway), which shows the pods of the present attempt. When they are gone, a list with a label has those of
//     the last attempt whose logs are in the log archive (snapshot.kept), and nothing of their state.
//   - The RBAC of the cluster decides who may read logs, and for pods on workers the RBAC of the hub.
//   - The JobSet is read if the user may read it and it is on this cluster. Without it, it is not known how many nodes a
//     step has and what it waits for.
//   - For a pod without a node, the API server answers with an empty log and no error. So the pod is checked first.
//
// Locks: output.mu guards the two streams and the last messages. watcher.mu guards the channel of changes.
package joblogs
