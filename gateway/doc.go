// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gateway is the API of the hub for users, with the pods of jobs that run on workers. An unmodified kubectl, or
// any other client, that uses the gateway's address instead of the hub's sees pods, logs and Events of jobs as if they
// ran on the hub.
//
// Use: New makes an http.Handler, to be served with TLS. It writes nothing to the hub, and needs no rights there.
//
// # What goes where
//
// Everything goes to the hub as it comes, with the caller's token, except lists, watches and reads of pods, their logs,
// exec, attach and port-forward, and lists and watches of Events (request.go). These have the hub's answer followed by
// what workers have (list.go; merge.go, showing.go), or go to the worker of the pod (pod.go, stream.go). The hub's answers come back
// as they are, but for more words to who may not read ClusterTrainingRuntimes (runtimes.go).
//
// # Who may what
//
// The hub decides, for each request. A list or watch of workers begins after the hub has answered the same list or watch
// of the caller. For one pod the gateway asks the hub by a SelfSubjectAccessReview with the caller's token (access.go).
// If the answer is no, the request goes to the hub, which says why. The caller's token never reaches a worker: a request
// to a worker is made from parts that were checked, and has a list of headers (stream.go).
//
// # What is shown
//
// Only pods of the present attempts of this hub's jobs, and Events about them. A pod names its JobSet by name and UID.
// The JobSet is read from the worker, and so is the copy that owns it, whose marks must be those of the Dispatch
// (copies.go, parts.go). Who can create pods in a copy's namespace on the worker can give a pod these labels.
//
// # Versions
//
// The resource version of a merged list, of its bookmarks and of workers' pods names the versions of all clusters
// (version.go). A watch goes on there. Objects of the hub keep their own. Between events that belong together, and after
// the jobs have left a worker that a version names, no watch can go on: the client gets 410, and lists.
//
// # Connections
//
// Each replica connects to a worker when somebody asks about it, after a check which cluster answers, and lets it go
// five minutes later (workers.go). These connections are not those over which jobs are placed, and have other limits.
//
// # Locks
//
// workers.mu guards workers.byName and the times of a worker, places.mu what places has, limits.mu the counts, and
// shared.mu the turns. Code under them does no I/O.
package gateway
