// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// protectedNamespace is why a job of such a namespace waits. A copy would be in the namespace of that name on a
// worker, where its pods could use what the worker's own components have there.
func protectedNamespace(namespace string) *dispatch.Decision {
	return &dispatch.Decision{
		Reason: v1alpha1.ReasonProtectedNamespace,
		Message: fmt.Sprintf("TrainJobs of namespace %q are not dispatched: namespaces that begin with kube-, the manager's own, "+
			"and those of its flag --protected-namespaces are protected; create the TrainJob in another namespace", namespace),
	}
}
