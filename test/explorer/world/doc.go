// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package world has a hub, its workers and the processes of both in virtual time, for package explorer. The doc of
// package explorer says what is real in it.
//
// A World changes only by Do, one Action at a time. A process has caches (feed) and controllers (loop). A running
// reconcile (task) is a coroutine. It stops at each request, until an action decides what happens to the request.
// Advance and Elapse let time pass. During Elapse, agents, kubelets and JobSet do what is due. A Generator draws
// actions. Rest repairs everything and waits until nothing happens any more.
//
// ledger.go checks the invariants at each change of an object, and rest.go at the end.
//
// There are no locks. Use this package from one goroutine only.
package world
