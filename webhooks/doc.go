// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhooks answers the admission requests of one cluster for TrainJobs, their status and runtimes. Add replaces
// the Kubeflow Trainer's webhooks on the same paths. Its answers say what is wrong, where, and what would be right.
//
//   - TrainJob defaulting sets the time of the last change of each runtime patch (defaults.go).
//   - TrainJob validation includes a dry run of the JobSet that would be made (trainjob.go and what it calls).
//   - Status validation checks the change: what a status may say depends on the old status (rules in status.go).
//   - Runtime validation is upstream's, and checks updates of TrainingRuntimes too (runtimes.go).
//   - The worker's API server itself decides who may write the marks of copies (config/admission, marks_test.go).
//
// Use: apply config/webhook and call Add. The manager's scheme must have the types of controllers/worker/trainjob, and
// its webhook server certificates. config/webhook decides which requests come here. This package does not rely on it.
//
// NewHubWebhooks returns the webhooks of a hub's manager, which config/webhook-hub sends TrainJobs to. They check a job
// as the agent would check its copy (hub.go, hubdryrun.go), refuse changes that the copy would not get (hublate.go),
// and give the manager's spec.managedBy to the jobs of some namespaces (hubadopt.go). They fail open: no error of
// theirs is a refusal.
//
// Watch out: the configurations of the agent fail closed for specs and open for status, and config/webhook says why.
// All replicas serve. A request may go to any replica, because webhooks keep no state except metrics and a dry run
// changes nothing.
package webhooks
