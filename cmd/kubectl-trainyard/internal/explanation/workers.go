// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package explanation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/fleet"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/jobs"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/output"
)

// Workers returns a table with a row for each worker in the explanation of a Dispatch: first the chosen worker, then
// workers that fit, by score, then the others. Wide columns come from the given WorkerClusters.
func Workers(d *v1alpha1.Dispatch, clusters []v1alpha1.WorkerCluster, now time.Time) *metav1.Table {
	table := output.NewTable(output.Column{Name: "Worker"}, output.Column{Name: "Result"}, output.Column{Name: "Score"},
		output.Column{Name: "Ready", Wide: true}, output.Column{Name: "GPUs", Wide: true}, output.Column{Name: "Jobs", Wide: true},
		output.Column{Name: "Refusals", Wide: true}, output.Column{Name: "Message"})
	rows := slices.Clone(d.Status.Explanation)
	slices.SortStableFunc(rows, func(a, b v1alpha1.ClusterExplanation) int {
		return cmp.Or(cmp.Compare(rank(b, d), rank(a, d)), cmp.Compare(a.Cluster, b.Cluster))
	})
	for _, e := range rows {
		result, score := e.Reason, any("-")
		if e.Cluster == d.Spec.Cluster {
			result += " (chosen)"
		}
		if e.Score != nil {
			score = *e.Score
		}
		ready, gpus, running := any(output.Unknown), any(output.Unknown), any(output.Unknown)
		if at := slices.IndexFunc(clusters, func(c v1alpha1.WorkerCluster) bool { return c.Name == string(e.Cluster) }); at >= 0 {
			ready, gpus, running = fleet.Ready(&clusters[at], now), fleet.GPUs(&clusters[at]), clusters[at].Status.Jobs
		}
		output.Add(table, e.Cluster, result, score, ready, gpus, running, refusals(d, e.Cluster), oneLine(withoutScore(e)))
	}
	return table
}

// withoutScore returns the message of an explanation without the score at its beginning, because the score has a
// column.
func withoutScore(e v1alpha1.ClusterExplanation) string {
	if e.Score == nil {
		return e.Message
	}
	return strings.TrimPrefix(e.Message, fmt.Sprintf("score %d: ", *e.Score))
}

// Message returns in one line why the job of a Dispatch is placed or waits. It is empty for a mere summary.
func Message(d *v1alpha1.Dispatch) string {
	if len(d.Status.Explanation) > 0 && v1alpha1.PlacedReasonOf(jobs.Reason(d)).SumsUp {
		return ""
	}
	return oneLine(jobs.Message(d))
}

// rank is higher for workers that are nearer to getting the job.
func rank(e v1alpha1.ClusterExplanation, d *v1alpha1.Dispatch) int32 {
	switch {
	case e.Cluster == d.Spec.Cluster:
		return 200
	case e.Score != nil:
		return 1 + *e.Score
	}
	return 0
}

// refusals returns how often a worker has refused the job.
func refusals(d *v1alpha1.Dispatch, worker v1alpha1.ClusterName) int32 {
	for _, refusal := range d.Status.Refusals {
		if refusal.Cluster == worker {
			return refusal.Count
		}
	}
	return 0
}
