// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config has the manifests that the kubectl plugin applies, so that the plugin needs no checkout.
//
// "kubectl apply -k" reads the same files. There is no second copy that could differ from them.
package config

import "embed"

// Files are the folders of what a worker gets. Their kustomizations refer to no other folder.
//
//go:embed admission crd/worker namespace webhook worker worker-agent
var Files embed.FS

// The kustomizations that are whole.
const (
	// Worker is what a hub needs on a worker: its account and rights, and the admission policies.
	Worker = "worker"
	// WorkerAgent is the agent with its rights, CRDs and webhooks, and the admission policies.
	WorkerAgent = "worker-agent"
)
