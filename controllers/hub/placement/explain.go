// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/queue"
)

// maxExplained is how many explanations are kept until something changes.
const maxExplained = 64

// explain says for every worker why it does or does not take the job. Jobs of the same class share what is returned.
func (l *line) explain(job *queue.Job) []v1alpha1.ClusterExplanation {
	known, snapshot, key, revision := l.snapshot(job)
	if known != nil {
		return known
	}
	explanation := snapshot.Explain(job)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.explainedAt == revision {
		l.explained[key] = explanation
	}
	return explanation
}

// snapshot returns the explanation of before if it is still right, or else what the job sees.
func (l *line) snapshot(job *queue.Job) (known []v1alpha1.ClusterExplanation, snapshot queue.Snapshot, key string, revision uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key = l.explanationKey(job)
	l.fleet.Workers() // It brings the revision up to date.
	if revision = l.fleet.revision; l.explainedAt != revision || len(l.explained) >= maxExplained {
		l.explained, l.explainedAt = map[string][]v1alpha1.ClusterExplanation{}, revision
	}
	if known = l.explained[key]; known == nil {
		snapshot = l.queue.Snapshot(job.Key(), l.fleet)
	}
	return known, snapshot, key, revision
}

// explanationKey tells apart jobs of which other things are said.
func (l *line) explanationKey(job *queue.Job) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n%q", job.Class, job.Previous, l.queue.Holders(job.Key()))
	for _, name := range slices.Sorted(maps.Keys(job.Excluded)) {
		fmt.Fprintf(&b, "\n%s\n%s\n%s", name, job.Excluded[name].Reason, job.Excluded[name].Message)
	}
	return b.String()
}
