// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/demand"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
)

// data knows which data is near which workers. It is shared by needs and watches.
type data struct {
	mu sync.Mutex
	// byWorker and all are under mu. Both are replaced, and never changed. all is nil until somebody asks.
	byWorker map[v1alpha1.ClusterName][]v1alpha1.WorkerData
	all      *dispatch.DataMap
}

// see takes in a WorkerCluster, and returns whether other data is near it than before.
func (d *data) see(worker *v1alpha1.WorkerCluster) bool {
	name, near := v1alpha1.ClusterName(worker.Name), worker.Spec.Data
	if worker.DeletionTimestamp != nil {
		near = nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.Equal(d.byWorker[name], near) {
		return false
	}
	next := maps.Clone(d.byWorker)
	if next == nil {
		next = map[v1alpha1.ClusterName][]v1alpha1.WorkerData{}
	}
	if next[name] = near; len(near) == 0 {
		delete(next, name)
	}
	d.byWorker, d.all = next, nil
	return true
}

// now is the DataMap of all workers.
func (d *data) now() *dispatch.DataMap {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil {
		d.all = dispatch.NewDataMap(d.byWorker)
	}
	return d.all
}

// dataOf is the DataMap of some workers.
func dataOf(workers []v1alpha1.WorkerCluster) *dispatch.DataMap {
	seen := &data{}
	for i := range workers {
		seen.see(&workers[i])
	}
	return seen.now()
}

// dataWarnings are about a new job that prefers data, of which no policy says that it counts.
func dataWarnings(job *trainer.TrainJob, reviewed *queue.Job) []string {
	text, annotated := job.Annotations[v1alpha1.AnnotationData]
	policy, _, err := dispatch.SelectPolicy(reviewed.Policies, reviewed.Job)
	if !annotated || err != nil {
		return nil
	}
	warning := demand.UnscoredData(text, policy)
	if warning == "" {
		return nil
	}
	return []string{fmt.Sprintf("%s: %s", annotationsPath.Key(v1alpha1.AnnotationData), warning)}
}
