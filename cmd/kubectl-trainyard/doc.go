// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Kubectl-trainyard is a plugin of kubectl. If it is in PATH, its name is "kubectl trainyard". It uses the rights of
// its user and the cluster of the current context.
//
//	kubectl trainyard clusters           the workers, and what they have free
//	kubectl trainyard board              workers, waiting jobs and all jobs in the browser
//	kubectl trainyard explain TRAINJOB   where a TrainJob runs and why, or why it waits
//	kubectl trainyard logs TRAINJOB      the log of a TrainJob
//	kubectl trainyard kubeconfig         a kubeconfig that leads through the hub's gateway
//	kubectl trainyard queue              the TrainJobs that wait, in order
//	kubectl trainyard simulate -f FILE   where a TrainJob would run
//	kubectl trainyard version            what this is
//
// For those who look after the workers:
//
//	kubectl trainyard cordon WORKER...   no new jobs there
//	kubectl trainyard uncordon WORKER... jobs there again; ends a drain
//	kubectl trainyard drain WORKER       move its jobs elsewhere
//	kubectl trainyard forget WORKER      give up a worker that will never return
//	kubectl trainyard adopt [WORKER NAMESPACE/NAME]    make a copy without a record the copy of its job
//	kubectl trainyard release [WORKER NAMESPACE/NAME]  leave such a copy to its worker, or delete it
//	kubectl trainyard import multikueue  take over the clusters of MultiKueue
//
// All commands except import, and except logs and kubeconfig, need the rights of this ClusterRole. The help of each
// command says which of them it needs:
//
//	rules:
//	- {apiGroups: [trainyard.dev], resources: [workerclusters], verbs: [get, list, watch, patch]}
//	- {apiGroups: [trainyard.dev], resources: [dispatches, tombstones], verbs: [get, list, watch]}
//	- {apiGroups: [trainer.kubeflow.org], resources: [trainjobs], verbs: [get, list, watch]}
//
// With the right to list Events in the namespace default, adopt and release also say why a decision is not carried out.
// The right to patch WorkerClusters is for admins of the hub: it permits changing where they lead to.
//
// kubectl completes the arguments (kubectl completion -h) if the same binary is in PATH as kubectl_complete-trainyard:
//
//	ln -s kubectl-trainyard kubectl_complete-trainyard
//
// Exit codes: 0, even for a failed job, if its log could be read; 2 from simulate if a job would have to wait, from
// drain --wait if jobs stay on the worker, and from import multikueue if something is left to do; 130 after Ctrl-C; 1
// for everything else, with one "error:" on standard error. Standard output has only the answer.
package main
