// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/dispatch/judgement"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// investigator finds out what the copies of one worker are that the hub's caches do not explain, and what to do.
type investigator struct {
	here             judgement.Worker
	hubID, managedBy string
	// hub reads from the hub's caches, stored from its API server.
	hub, stored hubReader
	unknown     unknownCopies
	attempts    attempts
	trust       trust
	adopter     adopter
	decisions   decisions
}

// investigate asks the API servers about a copy that the caches do not explain. The copy's job is not placed meanwhile.
// Caches lag, so it first reads the record from the hub's API server, and then the copy from the worker's. If there is
// no record, and the copy still exists after that, it never had one: a record is written before its copy, and deleted
// after.
func (i *investigator) investigate(
	ctx context.Context, worker workerClient, copy *unstructured.Unstructured, cached judgement.Seen,
) (time.Duration, error) {
	key := client.ObjectKeyFromObject(copy)
	held := i.unknown.see(copy)
	var err error
	if cached.Job, err = records.Job(ctx, i.hub, key); err != nil {
		return 0, err
	}
	if held.certain && copy.GetDeletionTimestamp() == nil && i.judge(copy, cached) == judgement.Unknown {
		return 0, i.decisions.carryOut(ctx, worker, copy) // Nothing has changed.
	}
	stored, err := i.stored.see(ctx, i.here, copy)
	if err != nil {
		return 0, err
	}
	if stored.Job, err = records.Job(ctx, i.stored, key); err != nil {
		return 0, err
	}
	existing, err := worker.Find(ctx, key)
	switch {
	case err != nil:
		return 0, err
	case existing == nil, existing.GetUID() != copy.GetUID(), !isOurs(existing, i.hubID):
		return 0, nil // The cache will show it.
	}
	return i.conclude(ctx, worker, existing, stored)
}

// judge judges a copy as if the API servers had said all this.
func (i *investigator) judge(copy client.Object, seen judgement.Seen) judgement.Copy {
	seen.Copy, seen.Asked, seen.ManagedBy = copy, true, i.managedBy
	seen.OtherAttempt = i.unknown.otherAttempt(client.ObjectKeyFromObject(copy), record.OriginOn(copy))
	return judgement.Of(seen).Copy
}

// conclude decides about a copy by what the API servers of hub and worker say.
func (i *investigator) conclude(
	ctx context.Context, worker workerClient, copy *unstructured.Unstructured, hub judgement.Seen,
) (time.Duration, error) {
	key, what := client.ObjectKeyFromObject(copy), i.judge(copy, hub)
	switch what {
	case judgement.Gone, judgement.Needed, judgement.Retained: // The hub's cache will show this too, and there may be no event for it.
		i.unknown.release(key)
		return goneCheck, nil
	case judgement.Outdated:
		i.unknown.release(key)
		return 0, worker.deleteCopy(ctx, copy, "outdated")
	case judgement.Unknown, judgement.Orphaned, judgement.Adoptable, judgement.Postponed:
	}
	held := i.unknown.see(copy)
	switch what {
	case judgement.Orphaned: // Nothing waits for the copy.
		return 0, worker.deleteCopy(ctx, copy, "outdated")
	case judgement.Adoptable:
		return i.believe(ctx, worker, copy, hub, held)
	case judgement.Postponed:
		return goneCheck, nil
	default:
		return 0, i.quarantine(ctx, worker, copy, held)
	}
}

// believe adopts a copy, or says why the hub does not believe that it is the job's copy.
func (i *investigator) believe(
	ctx context.Context, worker workerClient, copy *unstructured.Unstructured, hub judgement.Seen, held unknownCopy,
) (time.Duration, error) {
	if held.why.isFalse() && record.AttemptOf(hub.Dispatch).Live() && i.here.IsNamedBy(hub.Dispatch) {
		// The copy has the name that the job's own copy needs.
		return 0, worker.deleteCopy(ctx, copy, "outdated")
	}
	why, due, err := i.trust.reasonAgainst(ctx, copy, hub, held)
	switch {
	case err != nil:
		return 0, err
	case why.name == "":
		return 0, i.adopter.adopt(ctx, copy, hub)
	}
	held.reported = held.reported && held.why.name == why.name
	held.why = why
	return due, i.quarantine(ctx, worker, copy, held)
}

// quarantine leaves a copy alone, reports it, and does what an admin has decided about it.
func (i *investigator) quarantine(
	ctx context.Context, worker workerClient, copy *unstructured.Unstructured, held unknownCopy,
) error {
	held.certain = copy.GetDeletionTimestamp() == nil
	i.unknown.hold(client.ObjectKeyFromObject(copy), held)
	if !held.certain {
		return nil // There is no decision about a copy that is being deleted. The end of the deletion wakes us.
	}
	return i.decisions.carryOut(ctx, worker, copy)
}

// missing handles an unknown copy that the cache does not show. Its job waits until the worker's API server says that
// the copy is gone and that nothing of it remains.
func (i *investigator) missing(
	ctx context.Context, worker workerClient, key types.NamespacedName, held unknownCopy,
) (time.Duration, error) {
	existing, err := worker.Find(ctx, key)
	switch {
	case err != nil:
		return 0, err
	case existing != nil && existing.GetUID() == held.uid && isOurs(existing, i.hubID):
		return goneCheck, nil // The cache will show it.
	case existing == nil || existing.GetUID() != held.uid: // Otherwise it is a TrainJob of the worker now.
		if left, err := worker.HasRemains(ctx, key, copies.Gone{UID: held.uid, Beside: existing}); left || err != nil {
			held.certain = false // An admin has nothing left to decide.
			i.unknown.hold(key, held)
			return goneCheck, err
		}
	}
	if kept, err := i.attempts.keep(ctx, key, held); !kept || err != nil {
		return requeue.ConflictDelay, err
	}
	i.unknown.release(key)
	return 0, nil
}
