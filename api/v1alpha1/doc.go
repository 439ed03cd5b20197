// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the API of Trainyard: Dispatch, WorkerCluster, DispatchPolicy and CapacityReport, with the condition types,
// reasons, labels and annotations that its controllers write.
//
// A Dispatch is the record of where one hub TrainJob runs. A WorkerCluster registers a worker. A DispatchPolicy says which
// jobs may go where. A Tombstone is what is left to do on a worker that was away when its job went. They live on the hub only. On a worker Trainyard leaves nothing but ordinary objects (the copy of
// the TrainJob, and namespaces and runtimes that were missing), recognisable by the labels in labels.go, and, if it runs an agent, one
// CapacityReport of what its nodes have and its pods use, and an ExecutionLease for each hub. Their CRDs are in config/crd/worker, the
// others are in config/crd/bases.
//
// The package is a leaf: it imports API machinery and nothing else of this module.
//
// +kubebuilder:object:generate=true
// +groupName=trainyard.dev
package v1alpha1

//go:generate go tool -modfile=../../hack/tools/go.mod controller-gen object:headerFile=../../hack/boilerplate.go.txt paths=.
//go:generate go tool -modfile=../../hack/tools/go.mod controller-gen crd:generateEmbeddedObjectMeta=true paths=. output:crd:artifacts:config=../../config/crd/bases
//go:generate mv ../../config/crd/bases/trainyard.dev_capacityreports.yaml ../../config/crd/bases/trainyard.dev_executionleases.yaml ../../config/crd/worker/
