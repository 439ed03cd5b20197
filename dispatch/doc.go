// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dispatch decides on which worker a job runs. It is pure: the answer follows from the arguments, and nothing else is
// read or changed.
//
// Keep a *Nodes per worker, made by NewNodes when its nodes or pods change. Take off with Nodes.Reserve what is placed there
// and has no pods yet. Compile the expressions of policies once, with package expressions below this one. Then ask Decide, and
// where people will read why, Explain, which asks the same filters. SelectPolicy is for those who need a job's policy and no
// decision.
//
// # What fits
//
// A gang fits a worker if each of its pods has a place on a node as it is now: 8 pods of 8 GPUs do not fit on 64 nodes with one
// GPU free. Free amounts, node selector, required node affinity and taints are judged as the scheduler judges them. Whatever
// else a scheduler may want (pod affinity, topology spread, volumes, host ports, GPU topology) is not looked at, so a job can
// still wait for its pods on a worker that it fits. Initializers run before the other pods, and the two are fitted each by
// itself. How exact this is stands at Nodes.Fit.
//
// # Where it goes
//
// Filters are asked in this order: NotReady, Cordoned, PolicyMismatch (the policy's cluster selector), PinMismatch (the job's
// annotation), PolicyMismatch (the policy's expression), the job's own exclusions, InsufficientResources. A policy or a pin with a
// fault lets no worker through.
//
// Of the workers that pass, the one wins that has the highest average of the policy's scores by weight, and among equals the one
// with the highest hash of job and worker. Each score is a number from 0 to 100 that follows from the job and this worker alone,
// which is why it is not stretched so that the best has 100 and the worst 0, as is done elsewhere: then a third worker could make
// two others change places. Workers are compared by thousandths of a score, and people see whole ones.
//
//	LeastAllocated  share of the job's dominant resource (GPUs if it has any) that is free on the worker afterwards
//	MostAllocated   3/4 share of the free GPUs on the nodes that the job takes that it uses, 1/4 share of the worker that is then used,
//	                less one point for each job that was placed there and has pods that are on no node yet
//	Price           1 - cost / cost at the ceiling, by what the job takes per hour
//	QueueDepth      1 / (1 + jobs that were placed there and have pods that are on no node yet)
//	Sticky          1 where the job ran before, 0 elsewhere
//
// So neither the order of any argument nor a worker that lost makes a difference, but for one: where a policy scores by Price and gives
// no ceiling for a resource, the ceiling is the highest price in the fleet.
//
// # Who goes before whom
//
// In which order jobs are decided on is for package queue below this one. What it needs of the nodes is here. Hold is what jobs
// behind a large one may use of a worker, so that it is not passed for ever, Close the same where pods may go anywhere, and Places says
// how much of a gang has room already. Preempt chooses the jobs of lower priority that are stopped for one that fits nowhere. How
// far from the smallest set they can be stands there.
//
// # What to watch out for
//
// Workers must not share a name. Nodes must not have been reserved for the very job that is being decided. A decision is true
// for the nodes it was made on: reserve what was placed before the next one. The worker's scheduler knows nothing of what is
// held, see Hold. A *Nodes never changes and may be shared between goroutines; calls have no state in common.
package dispatch
