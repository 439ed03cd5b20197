// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package queue keeps the jobs that wait for a worker, in order. It decides about them again when a change could help
// them.
//
// Enter puts a job on the waiting list, and Leave removes it. Pass decides with package dispatch about the workers of a
// Fleet, and tells the Fleet what it has placed. Then Answer says for each waiting job what it waits for. Call Pass
// when jobs or workers have changed, and at the time that Next returns. The package does no I/O, and time is an
// argument. The manager uses it with real workers, and test/simulation with simulated ones.
//
// # Order
//
// Pass looks at jobs by priority, then age, then UID. Jobs behind a job that does not fit may overtake it, unless its
// policy is StrictFIFO. Then all jobs of the policy behind it wait too. A job that waits for something else than room
// delays no other job. Such a job fits on no worker that may take it, even if no job ran there.
//
// If a job has been overtaken for the time in its policy, it gets a reservation: one worker, on which it would fit if
// no job ran there. Jobs behind it get only what it does not need on that worker (see dispatch.Nodes.Hold). A worker
// has one reservation, for the first job in order. Of jobs with equal demand and priority only the first one has a
// reservation at a time, so that they do not hold the whole fleet. Jobs of strict policies get reservations too,
// because jobs of other policies overtake them.
//
// If a job fits nowhere and its policy allows preemption, it takes the room of jobs of lower priority (see
// dispatch.Preempt): it gets a reservation on their worker, and Pass names them. It preempts no other jobs while they
// are being stopped. Of jobs with equal demand and priority one after another does so.
//
// TestLikeReference compares all this, in random runs, with a few lines that decide about every job after each change.
//
// # Answers
//
// An answer is as old as the last decision about the job. Pass does not decide again about a job that a change cannot
// help. So the reason is right, but the numbers in the message can be old. Explain gives the present numbers. Both say
// of a worker that it is held for another job (answer.go, held.go).
//
// # Cost
//
// Jobs of equal demand, priority and rules are a class. Pass decides only about the first job of a class: what does not
// help the first job helps no other one.
//
// A pass decides about classes whose first job has changed. Of the other classes, it decides only about those that may
// fit on a changed worker. It finds them by what they request. For each request of GPUs for one pod (or CPUs, if no
// GPUs are needed) that a class has, it counts once how many such pods a changed worker has room for. Then it looks
// only at classes with no more pods than that. It asks only the changed worker. The other workers have no room, and
// that stays true while they do not change. It asks all workers about a class that is new, has a new older first job,
// or comes to the front of a strict policy. It does so before each placement by a policy that scores by price, and
// whenever a quarter of the workers has changed.
//
// So a change costs nothing for the jobs behind the first of their class. It costs a comparison of revisions for each
// worker, some microseconds for each different request, and a sort of the classes that may fit.
//
// Measured with 100,000 waiting jobs of 300 classes on two cores, with the costs of the tests' Fleet and of garbage
// collection (BenchmarkDrain, BenchmarkIdleEvent, BenchmarkEnter):
//
//	jobs that end and those that follow, 100 workers of 64 nodes    10,000 placements/s, 43 KB, 344 allocations each
//	the same with 1,000 workers                                     7,100 placements/s
//	a worker that changes and helps nobody                          24 us, with 1,000 as with 100,000 waiting jobs
//	a waiting job                                                   400 bytes, beside what it shares with other jobs
//
// What costs more:
//
//   - Jobs that are all different are a class each. With 100,000 such jobs the first pass decides 100,000 times, and so
//     does a change that may help them all.
//   - While a job's policy has an expression, each placement counts as a change of its worker: an expression may be
//     true because less is free there.
//   - For each change, Pass walks through the jobs of a strict policy from the first job to the first that waits for
//     room. When that job changes, Pass goes through all classes of the policy.
//   - While there are overdue jobs that no worker can be held for, each change checks whether they can get a
//     reservation now and, if their policy preempts, victims.
//   - Each change of a held worker computes again what is held there, see dispatch.Nodes.Hold. A job that becomes due
//     takes the worker of a later job if it suits best. The later job then looks for another worker, and so on.
//   - A job that comes back to a place far in front moves the jobs behind it in its class: 8 bytes for each of them.
package queue
