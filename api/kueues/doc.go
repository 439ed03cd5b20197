// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kueues reads the objects of Kueue: Workloads, queues, flavors, admission checks and MultiKueue's clusters.
//
//	workload, err := kueues.Read[kueues.Workload](object)
//	workload.Is(kueues.Admitted)
//
// The types have only the fields that Trainyard reads, in the version Version. Workloads and AdmissionChecks have the
// same fields in v1beta1. Kueue's own Go types are not used: the types of one release lack what the next release adds,
// such as effectiveQuotas of Kueue 0.20, and their module raises the versions of other modules.
//
// Objects stay unstructured on the way from an API server into a cache and back, so a write keeps the fields that this
// package does not know. Strip is for caches of objects whose quota is counted.
package kueues
