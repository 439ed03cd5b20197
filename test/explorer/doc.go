// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package explorer looks for courses of events in which a promise of docs/design.md does not hold. It runs the reconcilers themselves, not a
// model of them, in virtual time, one step after the other, in worlds that are drawn from a seed:
//
//	make explore                                  # for ten minutes, with seeds that nobody has tried
//	EXPLORER_SEED=17 go test ./test/explorer -run TestExplore -v       # one world again
//	EXPLORER_STEPS=50000000 go test ./test/explorer -run TestExplore -timeout 2h
//
// Package memory is the API servers, package world the processes and what is between them. A step is one event that a cache takes in, one
// reconcile that begins, one request that arrives, is lost, is late or arrives twice, one answer, some time that passes, or something that a
// fault, a user or an admin does. Reconciles are interrupted at each request, so that anything can happen between two of them.
// After each change of an object the invariants are checked (world/ledger.go). At the end everything is mended, and then everything has
// to come to rest: jobs end, nothing is left on workers, and nobody writes (world/rest.go).
//
// # What is run and what is played
//
// Run: mirror, garbagecollection with its Quarantine and Sweep, failover, executionlease, internal/records and the checks of test/laws
// on the hub, fencing with its gate on the workers. Played, in as little as possible (package world): placement (in turn, without
// room; placer.go), the connections with what workercluster writes of them, package perworker's sweeps and routes, the elections (of
// managers as client-go holds them; election.go), and a worker's TrainJob controller, JobSet, kubelet and garbage collectors.
//
// # What the world keeps to
//
// What the docs say that the hub relies on: two clocks differ by 2 % in their rates, and by any offset; agents, kubelets and JobSet do
// at once what is due, but for so many changes of leader as the hub's margin is for; a worker whose API server is down is not silent
// besides; all workers are there when a hub is restored; news is not older than four seconds where the network is whole. Overlaps that are
// documented do not count: Immediate, forgotten workers, and creations that arrive when their attempt has ended otherwise than by time.
//
// # When it fails
//
// The seed is printed, and the shortest course that was found in some hundred replays (Shrink), in words. Actions name what they are about
// and not a number in a list, so that those that are left mean the same without the others. TestBrokenRulesAreFound breaks rules of
// the world, one at a time, and each has to be found: that is how far the explorer can see.
package explorer
