// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// A worker that refuses to be swept gets no jobs: nothing would be created there. The explanation of the job says so,
// and the job is placed when the worker has been swept.
func TestUnsweptWorkerGetsNoJobs(t *testing.T) {
	s := newScene(t)
	refuse := func(w *v1alpha1.WorkerCluster) {
		meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{
			Type: v1alpha1.WorkerClusterSweepRefused, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRefused,
			Message: `admission webhook "w" denied the request`,
		})
	}
	s.worker(t, east, cordon)
	s.worker(t, west, refuse)
	s.Submit(t, "job")
	d, _ := s.reconcile(t, "job")
	if d.Spec.Cluster != "" {
		t.Fatalf("the job is placed on %q, where nothing can be created", d.Spec.Cluster)
	}
	at := slices.IndexFunc(d.Status.Explanation, func(line v1alpha1.ClusterExplanation) bool { return line.Cluster == west })
	if at < 0 {
		t.Fatalf("the Dispatch explains %+v, want a line of the worker", d.Status.Explanation)
	}
	if line := d.Status.Explanation[at]; line.Reason != v1alpha1.ReasonNotReady ||
		!strings.Contains(line.Message, `SweepRefused: admission webhook "w" denied the request`) {
		t.Errorf("the worker's line is %+v", line)
	}
	before := &v1alpha1.WorkerCluster{}
	refuse(before)
	if !workerPredicate().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: &v1alpha1.WorkerCluster{}}) {
		t.Error("nobody looks at the jobs that wait when the worker has been swept")
	}
	s.worker(t, west, func(w *v1alpha1.WorkerCluster) {
		meta.RemoveStatusCondition(&w.Status.Conditions, v1alpha1.WorkerClusterSweepRefused)
	})
	if d, _ = s.reconcile(t, "job"); d.Spec.Cluster != west {
		t.Errorf("the worker has been swept, and the job is on %q", d.Spec.Cluster)
	}
}
