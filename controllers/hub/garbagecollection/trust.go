// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/judgement"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/remote"
)

const (
	// maxSkipped is how many attempts beyond its own record the hub believes a worker. Between a backup and its restore, a
	// job that each worker of a fleet of a thousand refuses once makes a thousand attempts. A worker that lies can raise
	// the attempt by at most this number for each placement of the job. So the numbers last for two million placements.
	maxSkipped = 1000
	// answerCheck is how often to ask the worker on record about a job's copy while another worker claims the job.
	answerCheck = 10 * time.Second
)

// reason is why the manager does not adopt a copy of a later attempt than the hub knows. Zero: it adopts the copy.
type reason struct {
	name, message string
}

// stays is true for a reason that only an admin can remove.
func (r reason) stays() bool {
	return r.name == v1alpha1.ReasonRunsElsewhere || r.name == v1alpha1.ReasonAppearedLate
}

// isFalse is true if the copy is known not to be the job's copy. Such a copy delays nothing.
func (r reason) isFalse() bool { return r.name == v1alpha1.ReasonRunsElsewhere }

// isTooHigh is true if no hub can have counted from the recorded attempt to this attempt since a backup.
func isTooHigh(recorded, attempt int32) bool { return attempt > highestTrusted(recorded, attempt) }

// highestTrusted is the highest number, up to attempt, that the manager believes.
func highestTrusted(recorded, attempt int32) int32 {
	return int32(min(int64(attempt), int64(max(recorded, 0))+maxSkipped)) //nolint:gosec // It is not above attempt.
}

// recordedAttempt is the last attempt that the hub has on record for the job of a copy, 0 if it has none.
func recordedAttempt(copy client.Object, hub judgement.Seen) int32 {
	if hub.Dispatch == nil || hub.Dispatch.Spec.TrainJob.UID != record.OriginOn(copy) {
		return 0
	}
	return hub.Dispatch.Spec.Attempt
}

// trust says whether the manager believes a copy of a later attempt than the hub knows.
type trust struct {
	here  judgement.Worker
	hubID string
	// others is Options.Others.
	others    Others
	decisions decisions
	clock     clock.PassiveClock
}

// reasonAgainst says why the manager does not adopt a copy of a later attempt than the hub knows, and when to ask
// again. A worker can write anything on a copy. So a claim to a job on record elsewhere counts only if the worker on
// record lacks it.
func (t trust) reasonAgainst(
	ctx context.Context, copy *unstructured.Unstructured, hub judgement.Seen, held unknownCopy,
) (reason, time.Duration, error) {
	d, attempt := hub.Dispatch, record.AttemptOn(copy)
	recorded := recordedAttempt(copy, hub)
	accepted, err := t.decisions.isAccepted(ctx, copy)
	if err != nil {
		return reason{}, 0, err
	}
	if held.why.stays() && !accepted {
		return held.why, 0, nil
	}
	live := record.AttemptOf(d).Live()
	here := live && t.here.IsNamedBy(d)
	if live && !here {
		if why, due := t.ask(ctx, d, held); why.name != "" {
			return why, due, nil
		}
	}
	switch {
	case isTooHigh(recorded, attempt):
		return reason{v1alpha1.ReasonAttemptTooHigh, fmt.Sprintf(
			"the hub knows of attempt %d, and accepts at most %d attempts more from a worker", recorded, maxSkipped)}, 0, nil
	case !here && !held.found && !accepted:
		return reason{v1alpha1.ReasonAppearedLate,
			"the copy was not there when this manager looked at the worker for the first time, and nobody has asked for it"}, 0, nil
	}
	return reason{}, 0, nil
}

// ask asks the worker on record whether it has the job. There is no reason against the copy if the worker does not have
// the job and cannot get it any more: mirror creates nothing there while this copy is held.
func (t trust) ask(ctx context.Context, d *v1alpha1.Dispatch, held unknownCopy) (reason, time.Duration) {
	there, err := t.remains(ctx, d)
	switch {
	case err != nil:
		log.FromContext(ctx).V(1).Info("The worker on record could not be asked",
			"dispatch", client.ObjectKeyFromObject(d), "reason", err.Error())
		return reason{v1alpha1.ReasonNotAsked, fmt.Sprintf(
			"by the hub's record attempt %d is on worker %q, which does not answer", d.Spec.Attempt, d.Spec.Cluster)}, answerCheck
	case there == copies.Current:
		return reason{v1alpha1.ReasonRunsElsewhere, fmt.Sprintf("worker %q has the copy that is on record, of attempt %d",
			d.Spec.Cluster, d.Spec.Attempt)}, 0
	case there == copies.Left:
		return reason{v1alpha1.ReasonNotAsked, fmt.Sprintf(
			"attempt %d is being stopped on worker %q", d.Spec.Attempt, d.Spec.Cluster)}, goneCheck
	}
	if left := remote.CreationTimeout - t.clock.Since(held.since); left > 0 {
		return reason{v1alpha1.ReasonNotAsked, fmt.Sprintf(
			"a copy of attempt %d may be under way to worker %q, which has none", d.Spec.Attempt, d.Spec.Cluster)}, left
	}
	return reason{}, 0
}

// remains asks the API server of the worker that the Dispatch names what it has of the job: Nothing, Left or Current.
func (t trust) remains(ctx context.Context, d *v1alpha1.Dispatch) (copies.Remains, error) {
	if t.others == nil {
		return copies.Nothing, fmt.Errorf("worker %q is not known", d.Spec.Cluster)
	}
	connection, ok := t.others(d.Spec.Cluster, d.Spec.ClusterID)
	if !ok {
		return copies.Nothing, fmt.Errorf("worker %q is not connected", d.Spec.Cluster)
	}
	key := client.ObjectKeyFromObject(d)
	worker, err := connect(d.Spec.Cluster, connection)
	if err != nil {
		return copies.Nothing, err
	}
	existing, err := worker.Find(ctx, key)
	if err != nil {
		return copies.Nothing, err
	}
	if existing != nil {
		switch record.RelationOf(d, existing, record.Known{HubID: t.hubID}) {
		case record.Current, record.Second:
			if existing.GetDeletionTimestamp() != nil {
				return copies.Left, nil
			}
			return copies.Current, nil
		case record.Foreign, record.Unmarked, record.Older, record.Later:
			if !d.WasCopied() {
				return copies.Nothing, nil // The TrainJob has kept the copy from being created.
			}
		}
	}
	if left, err := worker.HasRemains(ctx, key, copies.Gone{UID: d.RecordedCopy(), Beside: existing}); left || err != nil {
		return copies.Left, err
	}
	return copies.Nothing, nil
}

// Others returns the connection to a worker by its name, if it leads to the cluster of that ID, or the ID is empty.
type Others func(worker v1alpha1.ClusterName, id types.UID) (copies.Connection, bool)
