// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kueue runs Kueue's MultiKueue for the benchmark: Kueue's own manager, built from its module (hack/build-kueue.sh), on the hub and
// on every worker, each as a process with its webhooks, its CRDs and its own certificates.
//
// What is installed are the manifests of the module's config/default, as kustomize renders them, but for what needs pods or rights: the
// Deployment, RBAC (the managers are admins, like Trainyard's) and the visibility server. The configuration is the one of the module, with
// addresses of its own for each process and no leader election. Where a kubelet would mount the Secret with the certificates, a file is
// written.
//
// # Tuned
//
// What Tuning changes is what an admin of this version can configure: limits of requests and concurrency, and which integrations run. One
// limit cannot be configured: MultiKueue's clients of the workers make 5 requests per second each. So workers are registered several
// times, each time for ClusterQueues of their own, over which the jobs are spread.
package kueue
