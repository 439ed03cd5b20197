// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/health"
)

// stuckLimit is for how long the worker must say that the copy cannot start. What an admin or the garbage collector is
// just changing there lasts for seconds.
const stuckLimit = time.Minute

// noJobSet are the agent's reasons for a copy that gets no JobSet. Package controllers/worker/trainjob writes them.
var noJobSet = []string{"ApplyFailed", "BuildFailed", "JobSetConflict", "RuntimeNotFound"}

// stuck is what this process knows of a copy that cannot start.
type stuck struct {
	lasts stopwatch
	// earlier is the UID of a JobSet that has the name of the copy, and is older than the copy. So it is not the copy's.
	earlier types.UID
	// warning is what the worker's Events say of a copy without a JobSet, where no agent says it.
	warning string
}

// refuseStuck ends the attempt of a copy that can never start on this worker, as if the worker had refused it. It
// returns when to look again, and true if it has asked for the end.
func (c *checkup) refuseStuck(ctx context.Context) (time.Duration, bool, error) {
	s, now := &c.attempt.stuck, c.clock.Now()
	why := c.cannotStart()
	if why == "" {
		s.lasts.reset()
		return 0, false, nil
	}
	if left := stuckLimit - s.lasts.elapsed(now); left > 0 {
		return left, false, nil
	}
	return 0, true, c.reporter.askEviction(ctx, v1alpha1.EvictionRejected, fmt.Sprintf("the copy cannot start on worker %q: %s", c.cluster, why))
}

// cannotStart says why the worker cannot run the copy, empty if it can, or if nobody says that it cannot. Without
// JobSets the worker cannot run a copy that has started either: its JobSet has gone, and its pods with it.
func (c *checkup) cannotStart() string {
	if trainjobs.Suspended(c.seen.job) || c.seen.isStopped() {
		return ""
	}
	if missing := c.jobSetMissing(); missing != "" {
		return missing
	}
	if c.seen.course != nil {
		return ""
	}
	// The Kubeflow Trainer takes the status of another JobSet of the name for the copy's.
	if isOfNoTrainJob(c.seen.otherJobSet) {
		return fmt.Sprintf("it has another JobSet %s/%s, which is left alone", c.seen.dispatch.Namespace, c.seen.dispatch.Name)
	}
	if hasStarted(c.seen.copy) {
		return ""
	}
	if trouble := trainjobs.TroubleOf(c.seen.copy); trouble != nil {
		if slices.Contains(noJobSet, trouble.Reason) {
			return trouble.Reason + ": " + trouble.Message
		}
		return ""
	}
	return c.attempt.stuck.warning
}

// isOfNoTrainJob is true for a JobSet that stays: the garbage collector deletes the JobSet of an earlier TrainJob.
func isOfNoTrainJob(jobSet *unstructured.Unstructured) bool {
	if jobSet == nil || jobSet.GetDeletionTimestamp() != nil {
		return false
	}
	owner := metav1.GetControllerOfNoCopy(jobSet)
	return owner == nil || owner.Kind != trainjobs.GroupVersionKind.Kind
}

// note keeps the UID of a JobSet that cannot be the copy's, because it was there before the copy.
func (s *stuck) note(jobSet, copy *unstructured.Unstructured) {
	if isOfNoTrainJob(jobSet) {
		made, there := copy.GetCreationTimestamp(), jobSet.GetCreationTimestamp()
		if there.Before(&made) { // Both times are of one clock.
			s.earlier = jobSet.GetUID()
		}
	}
}

// readStuck reads why a copy has no JobSet. The Kubeflow Trainer says it in an Event of the TrainJob only.
func (c *checkup) readStuck(ctx context.Context) error {
	s := &c.attempt.stuck
	if s.warning = ""; c.seen.course != nil || c.seen.otherJobSet != nil || !c.seen.jobSetsSeen {
		return nil
	}
	live, err := c.connection.APIReader()
	if err != nil {
		return err
	}
	s.warning, err = health.WarningOfTrainJob(ctx, live, c.seen.copy)
	if apierrors.IsForbidden(err) {
		return nil
	}
	return err
}
