// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
)

// Deadline is when the pods of a hub's fenced copies must have ended if the hub stays silent, by this replica's clock.
func (f *Fencer) Deadline(id string) (deadline time.Time) {
	f.tracker.view(id, func(h *hub, _ time.Time) { deadline = h.agent.Deadline() })
	return deadline
}

// Knows says whether the watch of this replica has shown the copy.
func (f *Fencer) Knows(job *trainer.TrainJob) bool {
	f.tracker.mu.Lock()
	defer f.tracker.mu.Unlock()
	_, known := f.tracker.copies[hubOf(job)][keyOf(job)]
	return known
}
