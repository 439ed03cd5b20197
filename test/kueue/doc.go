// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kueue runs Kueue's own manager beside a cluster, as a process with its webhooks, its CRDs and its own
// certificates. hack/build-kueue.sh builds it from its module.
//
//	m := kueue.New(cluster, admin, map[string]any{"manageJobsWithoutQueueName": true})
//	err := m.Install(ctx)
//	err = m.Start(ctx)
//	err = m.Apply(ctx, queues...)
//
// It installs the manifests of the module's config/default, as kustomize renders them, except what needs pods or
// rights: the Deployment, RBAC (the manager is an admin) and the visibility server. The configuration comes from the
// module, with addresses of its own for each process and without leader election. Where a kubelet would mount the
// Secret with the certificates, a file is written.
package kueue
