// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package records

import (
	"time"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

const (
	// StartLag is how long after its start a controller doubts the hub's caches: they were filled while another replica
	// led.
	StartLag = 10 * time.Second
	// StartupTime is how long after its start the manager waits for workers at most. Until it has looked at the workers
	// that it expects, it places no job and creates no first copy.
	StartupTime = 30 * time.Second
)

// Awaited returns the names of the workers that the manager expects and that have not been looked at.
func Awaited(workers []v1alpha1.WorkerCluster, isShown func(v1alpha1.ClusterName) bool) map[v1alpha1.ClusterName]bool {
	awaited := map[v1alpha1.ClusterName]bool{}
	for i := range workers {
		if name := v1alpha1.ClusterName(workers[i].Name); workers[i].IsExpected() && !isShown(name) {
			awaited[name] = true
		}
	}
	return awaited
}
