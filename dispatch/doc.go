// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dispatch decides on which worker a job runs. It is pure: only the arguments decide, and no call changes them.
//
// How to use it: make a *Nodes for each worker with NewNodes, again after each change of its nodes or pods. Take off
// the jobs that are placed there and have no pods yet with Nodes.Reserve. Compile the expressions of policies once,
// with package dispatch/expressions. Then call Decide to place a job, and Explain to show people why. Explain uses the
// same filters. SelectPolicy gives the policy of a job without a decision.
//
// # What fits
//
// A gang fits a worker if each of its pods has a place on a node as it is now: 8 pods of 8 GPUs do not fit on 64 nodes
// with one free GPU each. The package judges free amounts, host ports, node selector, required node affinity and taints
// as the scheduler does. It does not look at pod affinity, topology spread and volumes. So the pods of a job may still
// wait on a worker that the job fits. Initializers run before the other pods, and the package fits the two phases
// separately. Nodes.Fit says how exact this is.
//
// A job with a Topology is tried in the domains of each worker: the nodes that have the same value of a label. A chosen
// domain becomes a node selector of the job's demand (Job.PodSetsIn), so all else here knows nothing of domains.
//
// Nodes that a worker does not have and can add (Addable) are nodes with a mark. Nodes.Present leaves them out. Decide
// takes them only where no worker has room without them, unless the job's policy says otherwise (Job.AddNodes), and all
// that takes places off nodes takes them off nodes that are there first.
//
// The quota of a worker's Kueue is another kind of room (WithQuota), for jobs that go to a LocalQueue (QueueOf): a
// ClusterQueue has so much of each flavor, without a limit per node. Either only the quota counts for such jobs, or
// they must fit into the quota and on the nodes. PodSets get their flavors in the order of the job, as in Kueue, so
// here their order counts. Package dispatch/quota computes what a ClusterQueue has available.
//
// # Where a job goes
//
// Filters (filter.go) reject workers, the cheap ones first. A policy or a pin with a fault rejects every worker.
//
// Of the workers that pass, those that have room on nodes that are there come first, and those that would add nodes come
// last. Of the former, those on which a job with a Topology fits in one domain come first. Then the worker with the
// highest weighted average of the policy's scores (Scores) wins. Among equal workers, the highest hash of job and worker
// wins. Each score is a number from 0 to 100 that follows from the job and this worker alone. Other schedulers stretch
// scores so that the best worker has 100 and the worst has 0. This package does not: then a third worker could change
// the order of two others. Decide compares workers by thousandths of a score. Messages show whole scores.
//
// So neither the order of an argument nor a worker that was not chosen changes the result, with one exception: if a
// policy scores by Price without a ceiling for a resource, the ceiling is the highest price in the fleet.
//
// # Which job goes first
//
// Package dispatch/queue decides about the order of jobs. This package has what the queue needs of the nodes. Hold says
// what jobs behind a large job may use of a worker, so that they do not overtake it for ever. Close does the same where
// pods may go to any node. Places counts the pods of a gang that have a place already. Preempt chooses jobs of lower
// priority that are stopped for a job that fits nowhere, and says how far from the smallest set its choice can be.
//
// # What to watch out for
//
// No two workers may have the same name. The nodes must not contain a reservation for the job that is being decided. A
// decision is true for the nodes that it was made on: reserve each placed job before the next decision. The worker's
// scheduler does not know what Hold keeps free. A *Nodes never changes, and goroutines may share it. Calls share no
// state.
package dispatch
