// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// evict says on the Dispatch that the attempt is being ended, deletes the copy, and ends the attempt when nothing of the
// copy is left that could run. The two API servers show how far it is, so it goes on after a crash.
func (v *visit) evict(ctx context.Context) (time.Duration, error) {
	if v.copy != nil && v.isOurs(v.copy) && v.copy.GetDeletionTimestamp() != nil {
		evictingErr := v.reportEvicting(ctx)
		due, statusErr := v.reportStopping(ctx)
		endDue, endErr := v.awaitEnd(ctx)
		return requeue.Sooner(due, endDue), cmp.Or(evictingErr, statusErr, endErr) // The end of the copy wakes us.
	}
	// The cache may not show a copy whose creation got no answer, nor that the copy has just ended.
	found, err := v.lookFor(ctx)
	if err != nil {
		return 0, err
	}
	switch v.copy = found.copy; found.presence {
	case arriving:
		return found.wait, nil
	case left:
		v.copy = nil // A foreign TrainJob may have the name.
		evictingErr := v.reportEvicting(ctx)
		_, endErr := v.awaitEnd(ctx)
		return found.wait, cmp.Or(evictingErr, endErr)
	case current:
		return v.stop(ctx)
	case second:
		return endCheck, v.deleteOrSay(ctx, client.Preconditions{})
	case older: // garbagecollection deletes it.
		return endCheck, nil
	case foreign:
		if !v.wasCopied() {
			return 0, v.endAttempt(ctx, v1alpha1.OutcomeNameConflict, v.conflictMessage())
		}
	case nothing:
	}
	if ok, err := v.takeBackStatus(ctx); !ok || err != nil {
		return requeue.ConflictDelay, err
	}
	return 0, v.endAttempt(ctx, v1alpha1.Outcome(v.dispatch.Spec.Eviction.Reason), v.evictionMessage())
}

// stop deletes the copy as the worker's API server has it, unless it has ended.
func (v *visit) stop(ctx context.Context) (time.Duration, error) {
	if trainjobs.Terminal(v.copy) != nil {
		return v.finish(ctx)
	}
	evictingErr := v.reportEvicting(ctx)
	if evictingErr != nil && !records.IsFinal(evictingErr) {
		return 0, evictingErr
	}
	// The copy is deleted even if the hub refuses for good to record the eviction, but not if it may have ended meanwhile.
	unchanged := client.Preconditions{ResourceVersion: ptr.To(v.copy.GetResourceVersion())}
	if err := v.deleteOrSay(ctx, unchanged); err != nil {
		return 0, err
	}
	_, statusErr := v.reportStopping(ctx)
	return endCheck, cmp.Or(evictingErr, statusErr) // The end of a copy that the cache does not show wakes nobody.
}

// deleteOrSay deletes the copy, and says on the Dispatch if the worker refuses.
func (v *visit) deleteOrSay(ctx context.Context, holds client.Preconditions) error {
	err := v.worker.DeleteCopy(ctx, v.copy, holds)
	if isRefusal(err) || isFault(err) { // A webhook that cannot be called, say.
		err = errors.Join(err, v.reportKept(ctx, err))
	}
	return err
}

// resolveMissing ends the attempt of a copy that the cache does not show any more, once the worker's API server has
// said that nothing of the copy is left. A copy that has only lost our label gets the label back.
func (v *visit) resolveMissing(ctx context.Context) (time.Duration, error) {
	found, err := v.lookFor(ctx)
	if err != nil {
		return 0, err
	}
	switch v.copy = found.copy; found.presence {
	case arriving:
		return found.wait, nil
	case left:
		v.copy = nil
		_, err := v.awaitEnd(ctx)
		return found.wait, err
	case current:
		v.attempt.copy.believe(found.copy, v.Clock.Now())
		_, _, err := keeper{v}.bring(ctx)
		return createLag, err
	case second:
		return endCheck, v.deleteOrSay(ctx, client.Preconditions{})
	case older: // garbagecollection deletes it.
		return endCheck, v.claim(ctx, found.copy)
	case nothing, foreign:
	}
	if ok, err := v.takeBackStatus(ctx); !ok || err != nil {
		return requeue.ConflictDelay, err
	}
	if found.presence == foreign {
		return 0, v.endAttempt(ctx, v1alpha1.OutcomeNameConflict, v.conflictMessage())
	}
	return 0, v.endAttempt(ctx, v1alpha1.OutcomeCopyDeleted,
		fmt.Sprintf("the copy was deleted on worker %q before it had finished", v.Cluster))
}

// claim gives a copy our label back, by which the cache finds it. A label of another hub stays.
func (v *visit) claim(ctx context.Context, copy *unstructured.Unstructured) error {
	if _, labelled := copy.GetLabels()[v1alpha1.LabelHub]; labelled {
		return nil
	}
	claimed := copy.DeepCopy()
	putBack(claimed, []mark{{label: true, key: v1alpha1.LabelHub, value: v.HubID}})
	_, err := keeper{v}.patchCopy(ctx, copy, claimed, nil)
	return client.IgnoreNotFound(err)
}
