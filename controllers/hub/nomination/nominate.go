// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package nomination

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// nominate writes which worker is nominated, and keeps the room for the job there. The write fails with a conflict if
// the Workload has changed, so that a nomination is never taken from a worker that the Workload shows as its own.
func (r *Reconciler) nominate(
	ctx context.Context, o *observation, worker v1alpha1.ClusterName, why string,
) error {
	key := o.key
	m := r.progress(key, o.workload.UID)
	if m.over == o.workload.ResourceVersion {
		return nil // The cache will show the nomination.
	}
	if err := r.occupy(o, worker); err != nil {
		return err
	}
	patch, err := nominating(o.workload.object, worker)
	if err != nil {
		return err
	}
	err = r.Hub.Status().Patch(ctx, patch, client.Apply, client.FieldOwner(managerOfKueue), client.ForceOwnership) //nolint:staticcheck // The patch is no typed apply configuration.
	switch {
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		r.announcer.refused(o, err)
		return fmt.Errorf("nominate worker %q for Workload %s: %w", worker, key, err)
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("nominate worker %q for Workload %s: %w", worker, key, err)
	case err == nil:
		m.over = o.workload.ResourceVersion
		log.FromContext(ctx).Info("Nominated", "workload", key, "workerCluster", worker, "instead", o.nominee(), "why", why)
		r.announcer.nominated(o, worker, why)
	}
	return nil
}
