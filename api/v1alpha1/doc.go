// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the API of Trainyard: its kinds, and the condition types, reasons, labels and annotations that
// its controllers write.
//
// On the hub, a Dispatch records where one TrainJob runs. A WorkerCluster registers a worker. A DispatchPolicy says
// which jobs may run where. A Tombstone names copies to delete on a worker that was away. Their CRDs are in
// config/crd/bases.
//
// On a worker, Trainyard creates ordinary objects: copies of TrainJobs, and missing namespaces and runtimes. They have
// the labels in labels.go. If the worker runs an agent, it also has a CapacityReport of what its nodes have and its
// pods use, and an ExecutionLease for each hub. Their CRDs are in config/crd/worker.
//
// The package imports only API machinery, and nothing else of this module.
//
// +kubebuilder:object:generate=true
// +groupName=trainyard.dev
package v1alpha1

//go:generate go tool -modfile=../../hack/tools/go.mod controller-gen object:headerFile=../../hack/boilerplate.go.txt paths=.
//go:generate go tool -modfile=../../hack/tools/go.mod controller-gen crd:generateEmbeddedObjectMeta=true paths=. output:crd:artifacts:config=../../config/crd/bases
//go:generate mv ../../config/crd/bases/trainyard.dev_capacityreports.yaml ../../config/crd/bases/trainyard.dev_executionleases.yaml ../../config/crd/worker/
