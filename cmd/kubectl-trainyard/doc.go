// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Kubectl-trainyard is a plugin of kubectl: in PATH, it is "kubectl trainyard". It does what it can with the rights of the user
// who calls it, against the cluster of the current context.
//
//	kubectl trainyard logs TRAINJOB      the log of a TrainJob
//	kubectl trainyard version            what this is
//
// kubectl completes its arguments (kubectl completion -h) if the same binary is in PATH as kubectl_complete-trainyard, too:
//
//	ln -s kubectl-trainyard kubectl_complete-trainyard
//
// Exit codes: 0, also for a job that has failed, if its log could be read; 1 for everything else, with one "error:" on standard
// error; 130 after Ctrl-C. Standard output has what was asked for, and nothing else.
package main
