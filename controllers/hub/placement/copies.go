// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// UnknownCopies knows the copies of this hub that the hub has no record of, as after its restoration from a backup.
type UnknownCopies interface {
	// Of returns a worker that has one with the name of a hub TrainJob, whose UID is origin. It is asked often, and must not wait.
	Of(key types.NamespacedName, origin types.UID) (worker v1alpha1.ClusterName, ok bool)
}

// Wake makes the Reconciler look at TrainJobs again, and the decider do a pass. Those who implement UnknownCopies and Shown call it when
// their answers have changed. A key without a name is of no job. It never blocks.
func (r *Reconciler) Wake(keys ...types.NamespacedName) {
	for _, key := range keys {
		if key.Name != "" {
			r.inbox.Add(key)
		}
	}
	r.decider.Changed()
}

// heldBack is the verdict on a job that somebody else may run. Nil: there is no sign of that.
func heldBack(copies UnknownCopies, f facts) *dispatch.Decision {
	if verdict := kueueVerdict(f); verdict != nil || copies == nil {
		return verdict
	}
	key := client.ObjectKeyFromObject(f.job)
	worker, ok := copies.Of(key, f.job.GetUID())
	if !ok {
		return nil
	}
	return &dispatch.Decision{Reason: v1alpha1.ReasonUnknownCopy, Message: fmt.Sprintf(
		"worker %s has a copy of this name that the hub has no record of, and that may be running; the job waits until somebody decides: "+
			"kubectl trainyard adopt %s %s makes it the copy of this job; kubectl trainyard release %s %s leaves it to the worker",
		worker, worker, key, worker, key)}
}
