// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package world imagines workers with nodes, in virtual time. Whoever dispatches is a System: it is told of jobs that arrive and of
// workers on which something ends, and says which job goes to which worker, and which is to be stopped.
//
// # What is modelled
//
// A node has GPUs and CPU. Each worker has a scheduler of its own that binds the pods of a gang one by one, as kube-scheduler does,
// to the node that fits them best (or worst, see Options.Spread), whatever the System thought of. A gang of which some pods have no
// node holds the nodes of the others, does not run, and gets the rest in its turn when something ends. When all its pods are bound
// it runs for its duration, and frees everything at once. A job that is stopped keeps its nodes for the time that its pods take to
// end, and has lost what it did since its last checkpoint.
//
// # What is not
//
// Time for images, for the network and for API servers; failures of nodes, pods and workers; memory, GPU topology, and GPUs that are
// shared. Every System learns of everything at once.
//
// It does not import package dispatch, so that what it lets a gang have is not said by the code that it is there to test.
package world
