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

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
)

// hubRecords are what the hub has under the name of a copy. Each may be nil.
type hubRecords struct {
	dispatch   *v1alpha1.Dispatch
	tombstones []v1alpha1.Tombstone
	job        *unstructured.Unstructured
}

// hubReader reads what the hub has on record: from the hub's caches, or from its API server.
type hubReader struct{ client.Reader }

// recordsOf reads the Dispatch and the Tombstones of a copy. It does not read the job.
func (h hubReader) recordsOf(ctx context.Context, copy client.Object) (hubRecords, error) {
	var found hubRecords
	var err error
	if found.dispatch, err = h.dispatch(ctx, client.ObjectKeyFromObject(copy)); err != nil {
		return found, err
	}
	found.tombstones, err = h.tombstones(ctx, record.OriginOn(copy), record.AttemptOn(copy))
	return found, err
}

// dispatch reads the Dispatch of a name. It returns nil if there is none.
func (h hubReader) dispatch(ctx context.Context, key types.NamespacedName) (*v1alpha1.Dispatch, error) {
	d := &v1alpha1.Dispatch{}
	if err := h.Get(ctx, key, d); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("get Dispatch %s: %w", key, err)
	}
	return d, nil
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

// job reads the hub TrainJob of a name. It returns nil if there is none.
func (h hubReader) job(ctx context.Context, key types.NamespacedName) (*unstructured.Unstructured, error) {
	job := trainjobs.New()
	if err := h.Get(ctx, key, job); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("get TrainJob %s: %w", key, err)
	}
	return job, nil
}
