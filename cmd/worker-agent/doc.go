// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Worker-agent is the process that Trainyard runs on a cluster that has no Kubeflow Trainer of its own, be it a worker or the
// hub: it runs the TrainJobs of that cluster that carry the built-in managedBy value, and leaves the others alone. It needs
// no hub. For a hub that is not to read its nodes and pods it keeps a CapacityReport of them, where the CRD of that is installed. And it
// stops copies of a hub that has been silent for too long, if they are to be fenced.
//
// Any number of replicas can run. One works, by a lease that is the Kubeflow Trainer's, so that a Trainer and an agent never
// work at the same time either; the others keep their caches warm and take over. All of them answer the admission webhooks. Who fences
// is decided by another lease, so that it goes on beside a Trainer.
//
// Exit codes: 0 after SIGTERM or SIGINT, 1 for everything else, with the reason on standard error: one line, or one for each flag
// that is wrong.
package main
