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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// stopper ends the attempt, and deletes the copy before.
type stopper struct {
	seen      *observation
	attempt   *attempt
	cluster   v1alpha1.ClusterName
	clusterID types.UID
	clock     clock.PassiveClock
	worker    copies.Worker
	hub       client.Client
	hubReader client.Reader
	records   records.Writer
	verifier  *verifier
	search    *search
	mender    *mender
	reporter  *reporter
	status    *statusWriter
}

// evict says on the Dispatch that the attempt is being ended, deletes the copy, and ends the attempt when nothing of the
// copy is left that could run. The two API servers show how far it is, so it goes on after a crash.
func (s *stopper) evict(ctx context.Context) (time.Duration, error) {
	if s.seen.copy != nil && s.seen.isOurs(s.seen.copy) && s.seen.copy.GetDeletionTimestamp() != nil {
		evictingErr := s.reporter.reportEvicting(ctx)
		due, statusErr := s.status.reportStopping(ctx)
		endDue, endErr := s.awaitEnd(ctx)
		return requeue.Sooner(due, endDue), cmp.Or(evictingErr, statusErr, endErr) // The end of the copy wakes us.
	}
	// The cache may not show a copy whose creation got no answer, nor that the copy has just ended.
	found, err := s.search.lookFor(ctx)
	if err != nil {
		return 0, err
	}
	switch s.seen.copy = found.copy; found.remains {
	case copies.Arriving:
		return found.wait, nil
	case copies.Left:
		s.seen.copy = nil // A foreign TrainJob may have the name.
		evictingErr := s.reporter.reportEvicting(ctx)
		_, endErr := s.awaitEnd(ctx)
		return found.wait, cmp.Or(evictingErr, endErr)
	case copies.Current:
		return s.stop(ctx)
	case copies.Second:
		return endCheck, s.deleteOrReport(ctx, client.Preconditions{})
	case copies.Older: // garbagecollection deletes it.
		return endCheck, nil
	case copies.Foreign:
		if !s.seen.wasCopied() {
			return 0, s.reporter.endAttempt(ctx, v1alpha1.OutcomeNameConflict, s.reporter.conflictMessage())
		}
	case copies.Nothing:
	}
	if ok, err := s.status.takeBackStatus(ctx); !ok || err != nil {
		return requeue.ConflictDelay, err
	}
	return 0, s.reporter.endAttempt(ctx, v1alpha1.Outcome(s.seen.dispatch.Spec.Eviction.Reason), s.reporter.evictionMessage())
}

// stop deletes the copy as the worker's API server has it, unless it has ended.
func (s *stopper) stop(ctx context.Context) (time.Duration, error) {
	if trainjobs.Terminal(s.seen.copy) != nil {
		return s.status.finish(ctx)
	}
	evictingErr := s.reporter.reportEvicting(ctx)
	if evictingErr != nil && !records.IsFinal(evictingErr) {
		return 0, evictingErr
	}
	// The copy is deleted even if the hub refuses for good to record the eviction, but not if it may have ended meanwhile.
	unchanged := client.Preconditions{ResourceVersion: ptr.To(s.seen.copy.GetResourceVersion())}
	if err := s.deleteOrReport(ctx, unchanged); err != nil {
		return 0, err
	}
	_, statusErr := s.status.reportStopping(ctx)
	return endCheck, cmp.Or(evictingErr, statusErr) // The end of a copy that the cache does not show wakes nobody.
}

// deleteOrReport deletes the copy. It reports on the Dispatch if the worker refuses.
func (s *stopper) deleteOrReport(ctx context.Context, holds client.Preconditions) error {
	err := s.worker.DeleteCopy(ctx, s.seen.copy, holds)
	if isRefusal(err) || isFault(err) { // A webhook that cannot be called, say.
		err = errors.Join(err, s.reporter.reportKept(ctx, err))
	}
	return err
}

// resolveMissing ends the attempt of a copy that the cache does not show any more, once the worker's API server has
// said that nothing of the copy is left. A copy that has only lost our label gets the label back.
func (s *stopper) resolveMissing(ctx context.Context) (time.Duration, error) {
	found, err := s.search.lookFor(ctx)
	if err != nil {
		return 0, err
	}
	switch s.seen.copy = found.copy; found.remains {
	case copies.Arriving:
		return found.wait, nil
	case copies.Left:
		s.seen.copy = nil
		_, err := s.awaitEnd(ctx)
		return found.wait, err
	case copies.Current:
		s.attempt.copy.believe(found.copy, s.clock.Now())
		_, _, err := s.mender.permit(ctx)
		return createLag, err
	case copies.Second:
		return endCheck, s.deleteOrReport(ctx, client.Preconditions{})
	case copies.Older: // garbagecollection deletes it.
		return endCheck, s.mender.claim(ctx, found.copy)
	case copies.Nothing, copies.Foreign:
	}
	if ok, err := s.status.takeBackStatus(ctx); !ok || err != nil {
		return requeue.ConflictDelay, err
	}
	if found.remains == copies.Foreign {
		return 0, s.reporter.endAttempt(ctx, v1alpha1.OutcomeNameConflict, s.reporter.conflictMessage())
	}
	return 0, s.reporter.endAttempt(ctx, v1alpha1.OutcomeCopyDeleted,
		fmt.Sprintf("the copy was deleted on worker %q before it had finished", s.cluster))
}

// claim gives a copy our label back, by which the cache finds it. A label of another hub stays.
func (m *mender) claim(ctx context.Context, copy *unstructured.Unstructured) error {
	if _, labelled := copy.GetLabels()[v1alpha1.LabelHub]; labelled {
		return nil
	}
	claimed := copy.DeepCopy()
	putBack(claimed, []mark{{label: true, key: v1alpha1.LabelHub, value: m.hubID}})
	_, err := m.patchCopy(ctx, copy, claimed, nil)
	return client.IgnoreNotFound(err)
}
