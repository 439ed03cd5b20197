// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registration makes a cluster a worker of a hub, and takes it out again: the commands join and leave.
//
// It works on both clusters with the rights of the caller. Join.Preflight reads both clusters (observe.go) and judges
// what was read (check.go, which is pure). Join.Apply writes (plan.go says what). Every write is an apply, a merge
// patch or a deletion, and only the two clusters remember anything. So a run can follow a run that was interrupted
// anywhere. Leave does the reverse.
//
// The manifests of the worker come from the folder config, which the program contains.
//
// The account trainyard-hub of a worker is for all its hubs. A hub's tokens are bound to a Secret of the hub's own on
// the worker, whose label has the hub's ID. While the Secret is there, its hub has joined. When it is deleted, the
// tokens are invalid at once.
package registration
