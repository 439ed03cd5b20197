// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// setQueue sets the LocalQueue into which copies come on the worker that counts quota.
func (s *scene) setQueue(t *testing.T, queue v1alpha1.WorkerQueue) {
	t.Helper()
	worker := &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: string(queueing)}}
	patch := fmt.Sprintf(`{"spec":{"kueue":{"workerQueue":%q}}}`, queue)
	check.Must(t, s.Hub.Admin.Patch(t.Context(), worker, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// expectQueue expects what the Dispatch of a job says about its LocalQueue.
func (s *scene) expectQueue(t *testing.T, name string, want *string) {
	t.Helper()
	d := s.Dispatch(t, name)
	if got := d.Spec.LocalQueue; (got == nil) != (want == nil) || ptr.Deref(got, "") != ptr.Deref(want, "") {
		t.Errorf("the Dispatch of %s says %q (%t), want %q (%t)", name, ptr.Deref(got, ""), got != nil, ptr.Deref(want, ""), want != nil)
	}
}

// gated is a job that Kueue on the hub has started, by a flavor without labels.
func gated(job *trainer.TrainJob) {
	inTeamQueue(job)
	job.Spec.RuntimePatches = append(job.Spec.RuntimePatches, trainer.RuntimePatch{
		Manager: trainjobs.KueueManager,
		TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{Template: &trainer.JobSetTemplatePatch{Spec: &trainer.JobSetSpecPatch{
			ReplicatedJobs: []trainer.ReplicatedJobPatch{{Name: "node"}},
		}}},
	})
}

// TestQueueOfTheWorker: the queue that gets the copy is the queue whose quota counts, and the Dispatch names it.
func TestQueueOfTheWorker(t *testing.T) {
	s := newScene(t)
	s.withQuota(t, v1alpha1.KueueCapacityQuotaAndNodes)
	unqueued := func(job *trainer.TrainJob) {
		inTeamQueue(job)
		job.Labels = nil
	}
	s.Submit(t, "gated", gated)
	s.expectPlaced(t, "gated", true, "")
	s.expectQueue(t, "gated", ptr.To(""))
	s.setQueue(t, "main")
	s.Submit(t, "named", unqueued)
	s.expectPlaced(t, "named", true, "") // All quota is there: the first job is in no queue.
	s.expectQueue(t, "named", ptr.To("main"))
	// A later setting has no effect on jobs that have their queue, also after a restart.
	s.setQueue(t, v1alpha1.WorkerQueueFromJob)
	s.restart(t)
	s.Submit(t, "second", gated)
	s.expectPlaced(t, "second", false, "ClusterQueue team-a has 0 of the 8 nvidia.com/gpu that the job needs, flavor h100")
	s.setQueue(t, "absent")
	s.Submit(t, "lost", unqueued)
	s.expectPlaced(t, "lost", false, fmt.Sprintf("the worker has no LocalQueue %s/absent", s.Namespace))
}

// TestBadWorkerQueue: the API server says what is wrong with a setting.
func TestBadWorkerQueue(t *testing.T) {
	s := newScene(t)
	for _, queue := range []v1alpha1.WorkerQueue{"none", "FromJob", "None", "team-a.gpus", "Team", "-a", "a/b", "fromjob "} {
		policy := &v1alpha1.DispatchPolicy{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "queue-"}, Spec: v1alpha1.DispatchPolicySpec{WorkerQueue: queue},
		}
		err := s.Hub.Admin.Create(t.Context(), policy, client.DryRunAll)
		bad := strings.ContainsAny(string(queue), " /") || queue == "Team" || queue == "-a"
		if bad != (err != nil) || bad && !strings.Contains(err.Error(), "workerQueue must be FromJob, None, or the name of a LocalQueue") {
			t.Errorf("%q: %v", queue, err)
		}
	}
}
