// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hub has the webhooks of a hub's manager, to which config/webhook-hub sends TrainJobs. They check a job as the
// agent would check its copy (webhooks.go, with webhooks/validation) and as placement sees it (Hub), refuse changes
// that the copy would not get (late.go), and give the manager's spec.managedBy to the jobs of some namespaces
// (adopt.go).
//
// Use: call New, and Register with the webhook server of a process that has certificates.
//
// Watch out: they fail open. No error of theirs is a refusal, and the worker checks the copy again. All replicas serve.
// The webhooks have no state and need no lock.
package hub
