// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package protocol decides when copies of a hub may run on a worker, and when the hub may assume that they are stopped.
// It is pure: it does no I/O, and now is an argument.
//
// The worker's agent writes challenges, "<run>.<number>", into the hub's ExecutionLease. Each challenge is greater than
// the one before. The hub answers by repeating the last challenge that it has read. An answer proves that the hub was
// there after the agent wrote the challenge, however long the answer took to arrive. So an answer is as old as its
// challenge, by the monotonic clock of the agent's process. Nothing compares two clocks.
//
//	           agent, on the worker                            hub
//	t0         notes t0, writes challenge 7.1
//	                                                 reads 7.1 at h0 >= t0, answers
//	           reads the answer 7.1: Valid until t0 + fenceAfter
//	                      ... the hub is silent from now on ...
//	           stops the copies, so that their pods have
//	           ended at t0 + fenceAfter                        h0 + fenceAfter * 1.02 + margin: they have ended
//
// Agent is the lease as one replica of the agent knows it, and Agent.Decide says what to do about a copy. Attempts
// remembers the attempts of jobs. Hub is the lease as the hub knows it. The table tests show each rule. The property
// tests check what the agents promise.
//
// # How a replica knows the age of a challenge
//
// A replica does not count from when it first saw a challenge: a watch can lag, and a process that was stopped finds
// old events in its sockets. It counts from a time at which the challenge did not exist yet. The leader takes the time
// before it sends the write. A standby reads the lease from the API server after each new challenge: when it sent that
// read, the next challenge did not exist (Shown). So a standby's deadlines are one interval earlier than the leader's,
// and never later. This needs challenges that only grow. The optimistic lock of each write and the persisted run ensure
// that.
//
// # One copy of an attempt
//
// The hub repeats a creation that got no answer, and both requests may arrive. The second may arrive when the first
// copy has run and was deleted, and the job runs elsewhere. The challenges do not tell the two copies apart, because
// the later request may be the late one. So the agent stops a second copy of an attempt until the hub has seen that
// copy. The hub then removes the mark or stamps a greater challenge, on the condition that the copy is as it was read.
// Attempts remembers the first copy while a copy of the hub TrainJob exists, and after that for AttemptRetention or
// fenceAfter, whichever is longer. That is long enough: the hub sent the second creation before it saw the first copy,
// so the second copy's challenge is older than the end of the first copy, and after fenceAfter Admits refuses it. A
// process that lists the copies before it reads its first lease need not remember what was there before it began: it
// does not know the age of earlier challenges, and refuses them. The hub stamps only copies with failover Fenced. Of
// the other copies the agent refuses only lower attempts.
//
// # Takeover
//
// A replica that takes over may not know whether the last answer is still valid. It then waits for an answer of its own
// for the handover (fenceAfter / 10, at most Handover). After that it stops the copies within Slack. If it loses the
// lead before that, the next leader waits again, up to MaxHandovers times since the hub last answered a run. So copies
// can live MaxHandovers * (time of a change of leader + Handover) + Slack longer than the last answer is valid. The
// hub's margin has to cover that time. It is less than two minutes with leases of 15 s.
package protocol
