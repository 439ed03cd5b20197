// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package world is a hub, its workers and the processes of both in virtual time, for package explorer, which says what is real in it.
//
// A World changes only by Do, with one Action after the other. A process has caches (feed) and controllers (loop); a reconcile that is under
// way (task) is a coroutine that stops at each request, until an action says what becomes of it. Time passes by Advance and Elapse, in which
// agents, kubelets and JobSet do what is due. A Generator draws actions; Rest mends everything and waits until nothing happens any more.
//
// What must hold is checked where it can break: ledger.go at each change of an object, rest.go at the end.
//
// There are no locks, and nothing here may be called from two goroutines.
package world
