// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhooks answers the admission requests of one cluster for TrainJobs, their status, and the runtimes. It takes the place
// of the Kubeflow Trainer's webhooks, on the same paths, and its answers say what is wrong, where, and what would be right.
//
//   - TrainJobs are defaulted: each runtime patch gets the time of its last change (defaults.go).
//   - TrainJobs are validated, up to a dry run of the JobSet that would be made (trainjob.go and what it calls).
//   - The status of TrainJobs is validated as a transition: what a status may say depends on what it has said (status.go, whose
//     table of rules is its documentation).
//   - Who may write the marks of copies, the worker's API server decides by itself (config/admission, marks_test.go).
//   - ClusterTrainingRuntimes and TrainingRuntimes are validated as upstream does it, TrainingRuntimes on updates too (runtimes.go).
//
// Use: call Add with a manager whose scheme has the types of controllers/worker/trainjob and whose webhook server has certificates,
// and apply config/webhook. What reaches this package is decided there; nothing here relies on it.
//
// Watch out:
//
//   - The configurations fail closed for specs and open for status; config/webhook says why.
//   - All replicas serve. None of the webhooks keeps state, and a dry run changes nothing, so it does not matter which one answers.
//
// State in memory: none but metrics.
package webhooks
