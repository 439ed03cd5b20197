// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Worker-agent is the process that Trainyard runs on a cluster without a Kubeflow Trainer, on a worker or on the hub.
// It runs the TrainJobs of that cluster that have the built-in managedBy value, and leaves other TrainJobs alone. It
// needs no hub. If the CRD CapacityReport is installed, it keeps a report for a hub that must not read nodes and pods.
// It also fences copies whose hub is silent for too long.
//
// Any number of replicas can run. The replica that holds the Kubeflow Trainer's lease works, so a Trainer and an agent
// never work at the same time. The other replicas keep their caches filled and take over. All replicas answer the
// admission webhooks. The replica that holds another lease fences, so fencing works beside a Trainer too.
//
// Exit codes: 0 after SIGTERM or SIGINT if everything has stopped within 25 s, 1 for everything else, with the reason on
// standard error: one line, or one for each wrong flag.
package main
