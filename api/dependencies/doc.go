// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dependencies says which other objects the pods of a job name: Secrets and ConfigMaps with their keys, claims,
// accounts and classes. The pods do not start where such an object is missing, and Kubernetes says so late or never.
//
// How to use it: Of returns all references of a JobSet, OfPod those of one pod. Each Reference says which object and key
// is named, by which field of which step, and whether the pod starts without it. Missing compares the references with
// what a cluster has, and Words makes one sentence of what is missing.
//
// Watch out: a reference is not yet a reason to refuse a job. Only those that are Required stop pods. What a cluster
// makes for the job itself (claims of a JobSet's volumeClaimPolicies, ConfigMaps and Secrets of the runtime framework) is
// there when the pods are: Of leaves out the claims, and the caller says what else is made.
//
// What Kubernetes does with a missing object was read in v1.36 and tried on its kubelet and scheduler. TestEveryField
// finds all fields of a pod, so that a reference in a new field is not overlooked.
package dependencies
