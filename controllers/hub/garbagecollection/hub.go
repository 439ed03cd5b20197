// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/judgement"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
)

// hubRecords are what the hub has under the name of a copy. Each may be nil.
type hubRecords struct {
	dispatch   *v1alpha1.Dispatch
	tombstones []v1alpha1.Tombstone
	job        *unstructured.Unstructured
}

// seen is what is known of a copy on a worker.
func (h *hubRecords) seen(here judgement.Worker, copy client.Object) judgement.Seen {
	return judgement.Seen{Here: here, Job: h.job, Dispatch: h.dispatch, Tombstones: h.tombstones, Copy: copy}
}

// hubReader reads what the hub has on record: from the hub's caches, or from its API server.
type hubReader struct{ client.Reader }

// recordsOf reads the Dispatch and the Tombstones of a copy. It does not read the job.
func (h hubReader) recordsOf(ctx context.Context, copy client.Object) (hubRecords, error) {
	var found hubRecords
	var err error
	if found.dispatch, err = records.Dispatch(ctx, h, client.ObjectKeyFromObject(copy)); err != nil {
		return found, err
	}
	found.tombstones, err = h.tombstones(ctx, record.OriginOn(copy), record.AttemptOn(copy))
	return found, err
}

// tombstones reads the Tombstones of a job that may cover this attempt.
func (h hubReader) tombstones(ctx context.Context, origin types.UID, attempt int32) ([]v1alpha1.Tombstone, error) {
	var found []v1alpha1.Tombstone
	for _, name := range records.TombstoneNames(origin, attempt) {
		tombstone := v1alpha1.Tombstone{}
		switch err := h.Get(ctx, client.ObjectKey{Name: name}, &tombstone); {
		case err == nil:
			found = append(found, tombstone)
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("get Tombstone %q: %w", name, err)
		}
	}
	return found, nil
}
