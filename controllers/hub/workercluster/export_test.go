// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workercluster

// What a status is made of, for tests that have an API server take it.
var (
	SetVersions = setVersions
	CapacityOf  = capacityOf
	NodeOf      = nodeOf
)
