// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workercluster

// These are parts of a status, for tests that write them to an API server.
var (
	SetVersions = setVersions
	CapacityOf  = capacityOf
	NodeOf      = nodeOf
)
