// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
)

// maxExplained is how many explanations are kept until something changes.
const maxExplained = 64

// explainer keeps the explanations that have been made for one revision of the fleet, by what they are about.
type explainer struct {
	// mu is the Decider's. All below are under it.
	mu          *sync.Mutex
	list        *queue.Queue
	fleet       *fleet
	explained   map[string][]v1alpha1.ClusterExplanation
	explainedAt uint64
}

// Explain says for every worker why it does or does not take the job. Jobs of the same class share what is returned.
func (d *Decider) Explain(job *queue.Job) []v1alpha1.ClusterExplanation {
	for {
		explanation, panicked := d.explainer.explain(job)
		if panicked == nil {
			return explanation
		}
		d.mu.Lock()
		if d.fleet.losses.why(panicked.Worker) == "" { // Somebody else may have lost it meanwhile.
			d.fleet.Lose(panicked)
		}
		d.mu.Unlock()
		d.Changed()
	}
}

// explain is Explain, or a panic over one worker.
func (e *explainer) explain(job *queue.Job) (explanation []v1alpha1.ClusterExplanation, panicked *dispatch.WorkerPanic) {
	defer func() { panicked = dispatch.BlamedOn(recover()) }()
	known, snapshot, key, revision := e.snapshot(job)
	if known != nil {
		return known, nil
	}
	explanation = snapshot.Explain(job)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.explainedAt == revision {
		e.explained[key] = explanation
	}
	return explanation, nil
}

// snapshot returns the last explanation if it is still right, and otherwise the capacity that there is for the job.
func (e *explainer) snapshot(job *queue.Job) (known []v1alpha1.ClusterExplanation, snapshot queue.Snapshot, key string, revision uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	key = explanationKey(job, e.list.Holders(job.Key()))
	e.fleet.Workers() // It brings the revision up to date.
	if revision = e.fleet.revision; e.explainedAt != revision || len(e.explained) >= maxExplained {
		e.explained, e.explainedAt = map[string][]v1alpha1.ClusterExplanation{}, revision
	}
	if known = e.explained[key]; known == nil {
		snapshot = e.list.Snapshot(job.Key(), e.fleet)
	}
	return known, snapshot, key, revision
}

// explanationKey is equal for jobs that have the same explanation.
func explanationKey(job *queue.Job, holders []types.UID) string {
	common := job.Common()
	return fmt.Sprintf("%s\n%s\n%q\n%q", job.Class, common.Kind(), common.Excluded, holders)
}
