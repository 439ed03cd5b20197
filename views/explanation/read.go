// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package explanation

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/internal/hub"
	"github.com/trainyard/trainyard/views/jobs"
)

// Read reads a TrainJob and its Dispatch.
func Read(ctx context.Context, h *hub.Hub, key types.NamespacedName, now time.Time) (Observation, error) {
	f := Observation{Now: now}
	var err error
	if f.Job, err = h.Job(ctx, key); err != nil {
		return f, err
	}
	f.Dispatch, err = h.Dispatch(ctx, key)
	return f, err
}

// Complete reads what else is known of a job, as far as the user has the rights. It reads no place in the waiting list.
func (f *Observation) Complete(ctx context.Context, h *hub.Hub) {
	f.Events, f.NoEvents = h.Events(ctx, f.Job)
	if state := f.State(); state == Unmanaged || state == Ended {
		return
	}
	if clusters, err := h.Workers(ctx); err == nil {
		f.Clusters = clusters
	}
	if policies, err := h.Policies(ctx); err == nil {
		labels, _ := h.NamespaceLabels(ctx, f.Job.GetNamespace()) // Not every user may. Few policies need them.
		job := dispatch.JobOf(f.Job, labels)
		f.Policy = jobs.PolicyName(policies, job)
		policy, _, err := jobs.SelectPolicy(policies, job)
		if typed, fault := trainjobs.Typed(f.Job); err == nil && fault == nil {
			f.Data = Data(typed, policy)
		}
	}
}
