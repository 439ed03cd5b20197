// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package worker has the webhooks of the worker-agent, for TrainJobs, their status and runtimes. They take the place of
// the Kubeflow Trainer's webhooks on the same paths. Their answers say what is wrong, where, and what would be right.
//
//   - TrainJob defaulting sets the time of the last change of each runtime patch (defaults.go).
//   - Questions about pods: what the admission of the cluster makes of the pods of a TrainJob (pods.go). A hub asks before
//     it sends a copy.
//   - TrainJob validation has the checks of webhooks/validation, with a dry run of the JobSet that would be made
//     (trainjob.go), and says when runtime patches may change.
//   - Status validation checks the change: what a status may say depends on the old status (rules in status.go).
//   - Runtime validation is upstream's, and checks updates of TrainingRuntimes too (runtimes.go).
//
// Use: apply config/webhook and call Add. The manager's scheme must have the types of controllers/worker/trainjob, and
// its webhook server certificates. config/webhook decides which requests come here. This package does not rely on it.
//
// Watch out: the configurations fail closed for specs and open for status, and config/webhook says why. All replicas
// serve. A request may go to any replica, because webhooks keep no state except metrics and a dry run changes nothing.
package worker
