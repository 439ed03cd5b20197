// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
)

// verifier asks the hub's API server whether the hub's caches lag behind it.
type verifier struct {
	seen      *observation
	attempt   *attempt
	clock     clock.PassiveClock
	started   time.Time
	hubReader client.Reader
}

// doubted is true while the hub's caches may lag behind the writes of the replica that led before.
func (v *verifier) doubted() bool {
	return v.clock.Since(v.started) < records.StartLag
}

// dispatchIsCurrent is true if the cached Dispatch is the API server's. It is asked before a step that would be wrong
// otherwise. It sends a request only soon after the start, so that a job that runs and ends costs none.
func (v *verifier) dispatchIsCurrent(ctx context.Context) (bool, error) {
	if v.attempt.verified || !v.doubted() {
		return true, nil
	}
	var err error
	v.attempt.verified, err = v.isStored(ctx)
	return v.attempt.verified, err
}

// isStored is true if the API server has the Dispatch as it was observed.
func (v *verifier) isStored(ctx context.Context) (bool, error) {
	stored := &v1alpha1.Dispatch{}
	if err := v.hubReader.Get(ctx, client.ObjectKeyFromObject(v.seen.dispatch), stored); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return stored.ResourceVersion == v.seen.dispatch.ResourceVersion, nil
}
