// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"fmt"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Outcome says what has become of a copy after an admin's decision. dispatch is the Dispatch of the copy's name, or
// nil. The error says that something else than the decision has happened.
func Outcome(
	worker *v1alpha1.WorkerCluster, copy v1alpha1.UnknownCopy, decision v1alpha1.CopyDecision, dispatch *v1alpha1.Dispatch,
) (string, error) {
	key := keyOf(copy)
	switch decision {
	case v1alpha1.DecisionRelease:
		return fmt.Sprintf("trainjob %s released: it is one of worker %s's own now, and runs on", key, worker.Name), nil
	case v1alpha1.DecisionDelete:
		return fmt.Sprintf("trainjob %s deleted on worker %s", key, worker.Name), nil
	case v1alpha1.DecisionAdopt:
	}
	switch {
	case dispatch == nil:
		return "", fmt.Errorf("the copy of %s on worker %q is gone, and was not adopted: there is no Dispatch of its name", key, worker.Name)
	case dispatch.Spec.Cluster != v1alpha1.ClusterName(worker.Name):
		return "", fmt.Errorf("the copy of %s on worker %q is not unknown any more, and was not adopted: its job is %s",
			key, worker.Name, where(dispatch))
	}
	return fmt.Sprintf("trainjob %s adopted: it is on worker %s, attempt %d", key, worker.Name, dispatch.Spec.Attempt), nil
}

func where(d *v1alpha1.Dispatch) string {
	if d.Spec.Cluster == "" {
		return "waiting"
	}
	return fmt.Sprintf("on worker %q", d.Spec.Cluster)
}
