// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config has the manifests that the kubectl plugin applies, so that the plugin needs no checkout.
//
// "kubectl apply -k" reads the same files. There is no second copy that could differ from them.
package config

import (
	"embed"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Files are the folders of what a worker gets. Their kustomizations refer to no other folder.
//
//go:embed admission crd/worker namespace webhook worker worker-agent worker-dependencies worker-exec worker-logs worker-lookup worker-pins
var Files embed.FS

// The kustomizations that are whole.
const (
	// Worker is what a hub needs on a worker: its account and rights, and the admission policies.
	Worker = "worker"
	// WorkerLogs are the rights by which the hub's gateway shows logs and Events of jobs.
	WorkerLogs = "worker-logs"
	// WorkerExec are the rights by which users of the gateway execute commands in pods of their jobs, attach to them and
	// forward ports, with a policy that says in which namespaces.
	WorkerExec = "worker-exec"
	// WorkerLookup are the rights by which the hub looks for what the pods of jobs name.
	WorkerLookup = "worker-lookup"
	// WorkerDependencies are the rights by which the hub brings Secrets, ConfigMaps and ServiceAccounts of jobs to a worker,
	// with a policy that says into which namespaces.
	WorkerDependencies = "worker-dependencies"
	// WorkerPins is the right by which the hub deletes the runtimes that it has made on a worker for jobs that pin theirs, with a
	// policy that limits it to these.
	WorkerPins = "worker-pins"
	// WorkerAgent is the agent with its rights, CRDs and webhooks, and the admission policies.
	WorkerAgent = "worker-agent"
)

// crds are the CRDs of the hub.
//
//go:embed crd/bases
var crds embed.FS

// SpecOf returns the schema of the spec of a kind of the hub, by the plural of the kind: "dispatchpolicies".
func SpecOf(plural string) (*apiextensionsv1.JSONSchemaProps, error) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := read(crds, "crd/bases/trainyard.dev_"+plural+".yaml", &crd); err != nil {
		return nil, err
	}
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	return &spec, nil
}

// HubRole returns the ClusterRole of a hub on its workers.
func HubRole() (*rbacv1.ClusterRole, error) {
	role := &rbacv1.ClusterRole{}
	return role, read(Files, Worker+"/cluster_role.yaml", role)
}

func read(files embed.FS, path string, object any) error {
	text, err := files.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read config/%s: %w", path, err)
	}
	if err := yaml.UnmarshalStrict(text, object); err != nil {
		return fmt.Errorf("decode config/%s: %w", path, err)
	}
	return nil
}
