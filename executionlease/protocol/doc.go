// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package protocol decides when copies of a hub may run on a worker that may have lost it, and when the hub may take them for stopped.
// It is pure: now is an argument, and there is no I/O.
//
// The worker's agent writes challenges into the hub's ExecutionLease, "<run>.<number>", each greater than the one before. The hub
// answers them by repeating the last one that it has read. An answer proves that the hub was there after its challenge was written,
// however long the answer was on its way, so its age is that of the challenge, by the monotonic clock of the agent's process. No two
// clocks are compared.
//
//	           agent, on the worker                            hub
//	t0         notes t0, writes challenge 7.1
//	                                                 reads 7.1 at h0 >= t0, answers
//	           reads the answer 7.1: Valid until t0 + fenceAfter
//	                      ... nothing is heard any more ...
//	           stops the copies, so that their pods have
//	           ended at t0 + fenceAfter                        h0 + fenceAfter * 1.02 + margin: they have ended
//
// Agent is the lease in the eyes of one replica of the agent, its Decide what is to be done about one copy, Attempts what is remembered
// of attempts, and Hub the lease in the eyes of the hub. Their table tests are their documentation, and the property test says what the
// agents promise.
//
// # How a replica knows the age of a challenge
//
// Not from when it has heard of it: a watch can lag, and a process that was stopped finds old news in its sockets. It knows a time
// at which the challenge did not exist yet. Who writes one takes the time before the write is sent. Who only looks on reads the lease
// from the API server itself after each new challenge: when that read was sent, the next one did not exist (Shown). So a standby's
// deadlines are earlier than the leader's, by one interval, and never later. This needs that challenges only grow, which the
// optimistic lock of each write and the persisted run give.
//
// # One copy of an attempt
//
// A creation that got no answer is sent again, and both may arrive: the second when the first copy has run and was deleted, and the job
// is elsewhere. Their challenges do not tell them apart, as the later one may be the one that is late. So a copy that is not the first of
// its attempt is stopped until the hub has seen it: it takes the mark off, or stamps a greater challenge, under the condition that the
// copy is as it was read. Attempts remembers the first copy for as long as a copy of that hub TrainJob is there, and after that for
// AttemptMemory or fenceAfter, whichever is longer. That is enough: a second creation was sent before the hub saw the first copy, so its
// challenge is from before the first copy was gone, and fenceAfter later Admits refuses it. For the same reason it is enough to remember
// what was there since the process began, if it lists the copies before it reads its first lease: of challenges from before that, it
// knows no age, and refuses them. This is for copies with failover Fenced; of others only lower attempts are refused, as the hub
// stamps nothing on them.
//
// # Takeover
//
// A replica that takes over, and does not know whether the last answer still counts, has the handover (fenceAfter / 10, at most
// Handover) to get one of its own; after that it stops the copies within Slack. If that comes to nothing, because it goes too, the next
// one has it again, up to MaxHandovers times since a run was last answered. So from the moment when the last answer ends, copies can live
// MaxHandovers * (time of a change of leader + Handover) + Slack longer, which is what the hub's margin has to cover: with leases of 15 s
// less than two minutes.
package protocol
