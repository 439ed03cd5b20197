// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workercluster

import (
	"time"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// These are parts of a status, for tests that write them to an API server.
var (
	SetVersions = setVersions
	CapacityOf  = capacityOf
	NodeOf      = nodeOf
)

// SetSkew sets the condition SkewUnsupported of a worker, of a hub with a release.
func SetSkew(worker *v1alpha1.WorkerCluster, hub string) {
	r := &Reconciler{Options: Options{Release: func() string { return hub }}}
	r.setSkew(worker, &worker.Status, time.Time{})
}
