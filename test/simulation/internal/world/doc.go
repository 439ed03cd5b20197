// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package world simulates workers with nodes, in virtual time. A dispatcher is a System: it learns which jobs arrive
// and on which workers something ends. It says which job goes to which worker, and which job is to be stopped.
//
// # What is modelled
//
// A node has GPUs and CPU. Each worker has a scheduler of its own that binds the pods of a gang one by one, as
// kube-scheduler does, to the node that fits them best (or worst, see Options.Spread), whatever the System has assumed.
// If some pods of a gang have no node, the gang holds the nodes of the other pods and does not run. It gets the rest in
// its turn when something ends. When all its pods are bound it runs for its duration, and frees everything at once. A
// job that is stopped keeps its nodes for the time that its pods take to end, and has lost what it did since its last
// checkpoint.
//
// # What is not
//
// Time for images, for the network and for API servers; failures of nodes, pods and workers; memory, GPU topology, and
// GPUs that are shared. Every System learns of everything at once.
//
// It does not import package dispatch, because it tests that code: it must decide independently what a gang gets.
package world
