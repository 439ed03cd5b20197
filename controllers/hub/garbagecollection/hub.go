// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/judgement"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
)

// hubReader reads what the hub has on record: from the hub's caches, or from its API server.
type hubReader struct{ client.Reader }

// see reads the Dispatch and the Tombstones of a copy on a worker. It does not read the job.
func (h hubReader) see(ctx context.Context, here judgement.Worker, copy client.Object) (judgement.Seen, error) {
	found := judgement.Seen{Here: here, Copy: copy}
	var err error
	if found.Dispatch, err = records.Dispatch(ctx, h, client.ObjectKeyFromObject(copy)); err != nil {
		return found, err
	}
	found.Tombstones, err = h.tombstones(ctx, record.OriginOn(copy), record.AttemptOn(copy))
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
