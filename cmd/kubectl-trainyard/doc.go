// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Kubectl-trainyard is a plugin of kubectl: in PATH, it is "kubectl trainyard". It does what it can with the rights of the user
// who calls it, against the cluster of the current context.
//
//	kubectl trainyard clusters           the workers, and what they have free
//	kubectl trainyard explain TRAINJOB   where a TrainJob runs and why, or why it waits
//	kubectl trainyard logs TRAINJOB      the log of a TrainJob
//	kubectl trainyard queue              the TrainJobs that wait, in order
//	kubectl trainyard simulate -f FILE   where a TrainJob would run
//	kubectl trainyard version            what this is
//
// kubectl completes its arguments (kubectl completion -h) if the same binary is in PATH as kubectl_complete-trainyard, too:
//
//	ln -s kubectl-trainyard kubectl_complete-trainyard
//
// Exit codes: 0, also for a job that has failed, if its log could be read; 2 from simulate if a job would have to wait; 1 for
// everything else, with one "error:" on standard error; 130 after Ctrl-C. Standard output has what was asked for, and nothing else.
package main
