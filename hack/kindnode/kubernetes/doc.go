// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubernetes is etcd and all programs of Kubernetes that a node of kind runs, in one binary. The name of the
// link that starts it says which program it is. One binary shares the compiled libraries, and keeps the node image
// small.
package main
