// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validation checks TrainJobs for the webhooks of hub and worker. What it finds says what is wrong, where, and
// what would be right.
//
// It checks a job in two steps. First the form: what the job names must be in its runtime (runtime.go, patches.go), and
// the runtime framework of the trainer module must accept it (framework.go). Then a dry run of the JobSet and the pods
// that would be made, so that the API server's refusal reaches the user now and not a controller later (build.go,
// dryrun.go; without pods: templates.go). It names the field of the TrainJob that causes a refusal (answers.go,
// origin.go). The dry run needs a correct form. At the same time it looks for the objects that the pods name
// (dependencies.go), because the API server accepts pods without them.
//
// Use: call New. Of a new job, look at KindFaults, LiveRuntime, Form and DryRun, in this order; of a changed job at
// ChangedPatches, CurrentRuntime, ChangedForm and DryRunChange. Result.Refuse makes the answer, and counts its faults.
//
// Watch out: a check that is not possible is a warning, and no fault. A Checker has no state and needs no lock.
package validation
