// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
)

// maxExplained is how many explanations are kept until something changes.
const maxExplained = 64

// Explain says for every worker why it does or does not take the job. Jobs of the same class share what is returned.
func (d *Decider) Explain(job *queue.Job) []v1alpha1.ClusterExplanation {
	for {
		explanation, panicked := d.tryExplain(job)
		if panicked == nil {
			return explanation
		}
		d.mu.Lock()
		if d.fleet.lost(panicked.Worker) == "" { // Somebody else may have lost it meanwhile.
			d.fleet.Lose(panicked)
		}
		d.mu.Unlock()
		d.Changed()
	}
}

// tryExplain is Explain, or a panic over one worker.
func (d *Decider) tryExplain(job *queue.Job) (explanation []v1alpha1.ClusterExplanation, panicked *dispatch.WorkerPanic) {
	defer func() { panicked = dispatch.BlamedOn(recover()) }()
	known, snapshot, key, revision := d.snapshot(job)
	if known != nil {
		return known, nil
	}
	explanation = snapshot.Explain(job)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.explainedAt == revision {
		d.explained[key] = explanation
	}
	return explanation, nil
}

// snapshot returns the last explanation if it is still right, and otherwise the capacity that there is for the job.
func (d *Decider) snapshot(job *queue.Job) (known []v1alpha1.ClusterExplanation, snapshot queue.Snapshot, key string, revision uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key = explanationKey(job, d.list.Holders(job.Key()))
	d.fleet.Workers() // It brings the revision up to date.
	if revision = d.fleet.revision; d.explainedAt != revision || len(d.explained) >= maxExplained {
		d.explained, d.explainedAt = map[string][]v1alpha1.ClusterExplanation{}, revision
	}
	if known = d.explained[key]; known == nil {
		snapshot = d.list.Snapshot(job.Key(), d.fleet)
	}
	return known, snapshot, key, revision
}

// explanationKey is equal for jobs that have the same explanation.
func explanationKey(job *queue.Job, holders []types.UID) string {
	common := job.Common()
	return fmt.Sprintf("%s\n%s\n%q\n%q", job.Class, common.Kind(), common.Excluded, holders)
}
