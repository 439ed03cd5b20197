// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"sync"

	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/decider"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
)

// localQueueOf is what the Dispatch of a job says about the LocalQueue of its worker. Nil: the copy has the job's
// labels, of which none names a queue.
func localQueueOf(grant *decider.Grant) *string {
	local := dispatch.QueueOf(&grant.Job.Job, grant.Worker.Spec.Kueue.WorkerQueue)
	if local.Name == "" && grant.Job.Labels[v1alpha1.LabelLocalQueue] == "" {
		return nil
	}
	return ptr.To(local.Name)
}

// workerQueues knows the workers that bring jobs into a LocalQueue whatever the jobs say. The LocalQueue is one of the
// job's namespace. So jobs of two namespaces are no longer alike, even without a label of a queue.
type workerQueues struct {
	mu    sync.Mutex
	named map[v1alpha1.ClusterName]bool // Under mu.
}

// see takes in a WorkerCluster, and returns whether the classes of jobs have changed.
func (w *workerQueues) see(worker *v1alpha1.WorkerCluster) bool {
	setting := worker.Spec.Kueue.WorkerQueue
	names := setting != "" && setting != v1alpha1.WorkerQueueFromJob && setting != v1alpha1.WorkerQueueNone
	w.mu.Lock()
	defer w.mu.Unlock()
	before := len(w.named) > 0
	if w.named == nil {
		w.named = map[v1alpha1.ClusterName]bool{}
	}
	if delete(w.named, v1alpha1.ClusterName(worker.Name)); names {
		w.named[v1alpha1.ClusterName(worker.Name)] = true
	}
	return before != (len(w.named) > 0)
}

// apart is the class of jobs that are alike also in the LocalQueues whose quota may count for them.
func (w *workerQueues) apart(class string, job *queue.Job) string {
	local := job.Labels[v1alpha1.LabelLocalQueue]
	if local == "" && job.WorkerQueue == "" && !w.any() {
		return class
	}
	return fmt.Sprintf("%s\n%s/%s %t", class, job.Namespace, local, job.QueuedOnHub)
}

func (w *workerQueues) any() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.named) > 0
}
