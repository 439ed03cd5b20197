// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package explorer looks for sequences of events that break a promise of docs/design.md. It runs the reconcilers
// themselves, not a model of them. It runs them in virtual time, one step after the other, in worlds that a seed
// determines:
//
//	make explore                                  # for ten minutes, with new seeds
//	EXPLORER_SEED=17 go test ./test/explorer -run TestExplore -v       # the world of one seed again
//	EXPLORER_STEPS=50000000 go test ./test/explorer -run TestExplore -timeout 2h
//	EXPLORER_STEPS=50000000 go test ./test/explorer -run 'TestGiveUp$' -timeout 2h    # with giveUpAfter
//
// Package memory has the API servers. Package world has the processes and the network. A step is one of these: a cache
// takes in an event, a reconcile begins, a request arrives, is lost, is late or arrives twice, an answer arrives, time
// passes, or a fault, a user or an admin does something. A reconcile stops at each request, so anything can happen
// between two requests. After each change of an object the explorer checks the invariants (world/ledger.go). At the end
// it repairs everything. Then everything has to come to rest: jobs end, workers have nothing left, and no process
// writes (world/rest.go).
//
// # What is real and what is simulated
//
// These parts are real: mirror, garbagecollection with its Quarantine and Sweep, failover, executionlease,
// internal/records and the checks of test/laws on the hub, and fencing with its gate on the workers. Package world
// simulates the rest, with as little code as possible: placement (in turn, without capacity; placer.go), the
// connections with what workercluster writes about them, package perworker's sweeps and routes, the elections (of
// managers as client-go holds them; election.go), and a worker's TrainJob controller, JobSet, kubelet and garbage
// collectors.
//
// # What the world guarantees
//
// The world guarantees what the hub relies on according to the docs. The rates of two clocks differ by at most 2 %,
// their offset is arbitrary. Agents, kubelets and JobSet do at once what is due, except for as many changes of leader
// as the hub's margin allows. A worker whose API server is down is not also silent. All workers are present when a hub
// is restored. News is at most four seconds old where the network works. Documented overlaps do not count: Immediate,
// forgotten workers, and creations that arrive when their attempt has ended in another way than by time.
//
// # When it fails
//
// A failure prints the seed, and the shortest sequence that some hundred replays have found (Shrink), in words. An
// Action names its object instead of a number in a list, so it means the same when other actions are left out.
// TestBrokenRulesAreFound breaks rules of the world, one at a time, and the explorer has to find each of them: that
// shows what it can find.
package explorer
