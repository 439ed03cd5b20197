// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhooks has no code. The packages in it answer the admission requests of a cluster.
//
//   - webhooks/worker runs in the worker-agent, and takes the place of the Kubeflow Trainer's webhooks.
//   - webhooks/hub runs in the manager, and answers for the TrainJobs that it dispatches.
//   - webhooks/validation has the checks of TrainJobs that both ask.
//
// The tests in this folder run both against one cluster: a hub has to refuse a job in the words of a worker. They also
// test the policies of config/admission: the worker's API server itself decides who may write the marks of copies
// (marks_test.go).
package webhooks
