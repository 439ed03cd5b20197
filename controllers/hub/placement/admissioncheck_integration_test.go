// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/kueue"
)

const pending = roomCheck + ":" + kueue.Pending

func suspendedJob(job *trainer.TrainJob) { job.Spec.Suspend = new(true) }

// checkState returns the admission check of a job's Workload.
func (k *kueueAPI) checkState(t *testing.T, job string) map[string]any {
	t.Helper()
	w := kueueObject("kueue.x-k8s.io/v1beta2", "Workload", "trainjob-"+job)
	w.SetNamespace(k.namespace)
	must(t, k.hub.Get(t.Context(), client.ObjectKeyFromObject(w), w))
	checks, _, err := unstructured.NestedSlice(w.Object, "status", "admissionChecks")
	must(t, err)
	for _, check := range checks {
		if fields := check.(map[string]any); fields["name"] == roomCheck {
			return fields
		}
	}
	t.Fatalf("the Workload has the checks %v", checks)
	return nil
}

// checked reconciles a job until its admission check has a state: the Watch may lag behind the last write. It fails
// unless the next reconcile writes nothing.
func (k *kueueAPI) checked(t *testing.T, job, state, words string) (*v1alpha1.Dispatch, reconcile.Result) {
	t.Helper()
	var d *v1alpha1.Dispatch
	var result reconcile.Result
	gomega.NewWithT(t).Eventually(func() string {
		d, result = k.reconcile(t, job)
		check := k.checkState(t, job)
		message, _ := check["message"].(string)
		if !strings.Contains(message, words) {
			return message
		}
		return check["state"].(string)
	}, patience, 10*time.Millisecond).Should(gomega.Equal(state), "the admission check")
	before := k.checkState(t, job)
	k.reconcile(t, job)
	if after := k.checkState(t, job); !cmp.Equal(before, after) {
		t.Errorf("the check was written again (-before +after):\n%s", cmp.Diff(before, after))
	}
	return d, result
}

// A suspended job with quota waits in the one line, and room is held for it before Kueue resumes it, in one attempt.
func TestRoomIsHeldForAJobWithQuota(t *testing.T) {
	k := newScene(t).withKueue(t)
	k.read(t)
	k.submit(t, "first", large, pinned("region=east"))
	first := k.placed(t, "first", 1)
	k.submit(t, "gated", large, pinned("region=east"), queued, suspendedJob)
	if d, _ := k.reconcile(t, "gated"); d != nil {
		t.Fatalf("the suspended job has the Dispatch %+v", d)
	}
	k.setWorkload(t, "gated", kueue.QuotaReserved, []string{withQuota}, pending)
	k.checked(t, "gated", kueue.Pending, "NoFit")
	if d := k.expect(t, "gated", v1alpha1.ReasonNoFit); len(d.Status.Explanation) == 0 {
		t.Error("the Dispatch does not say what each worker lacks")
	}
	k.clock.Step(time.Hour) // The worker could take it, so it stands in line for as long as that takes.
	k.checked(t, "gated", kueue.Pending, "NoFit")

	must(t, k.hub.Delete(t.Context(), first))
	k.lose(first)
	d, _ := k.checked(t, "gated", kueue.Ready, "east")
	if d.Spec.Cluster != east || d.Spec.Attempt != 1 {
		t.Fatalf("the Dispatch is %+v, want it placed", d.Spec)
	}
	t.Run("Restart", func(t *testing.T) {
		k.startWatch(t)
		if again, _ := k.reconcile(t, "gated"); !cmp.Equal(d, again) {
			t.Errorf("before Kueue is known the Dispatch was written (-before +after):\n%s", cmp.Diff(d, again))
		}
		k.read(t)
		k.setWorkload(t, "gated", kueue.QuotaReserved, []string{withQuota}, pending) // The write was lost.
		if again, _ := k.checked(t, "gated", kueue.Ready, "east"); !cmp.Equal(d, again) {
			t.Errorf("the Dispatch was written (-before +after):\n%s", cmp.Diff(d, again))
		}
	})
	k.setWorkload(t, "gated", kueue.QuotaReserved, []string{withQuota, admitted}, roomCheck)
	if again, _ := k.reconcile(t, "gated"); !cmp.Equal(d, again) {
		t.Errorf("Kueue is about to resume the job, and the Dispatch was written (-before +after):\n%s", cmp.Diff(d, again))
	}
	k.setWorkload(t, "gated", kueue.Held, []string{withQuota, evictedByKueue}, pending)
	if d := k.placed(t, "gated", 1); d.Spec.Eviction == nil || d.Spec.Eviction.Reason != v1alpha1.EvictionSuspended {
		t.Errorf("Kueue takes the quota back, and spec.eviction is %+v", d.Spec.Eviction)
	}
}

// A job that is suspended while it has a copy leaves its worker, though it may have quota again already.
func TestCopyOfASuspendedJobIsStopped(t *testing.T) {
	k := newScene(t).withKueue(t)
	k.read(t)
	k.submit(t, "gated", queued, suspendedJob)
	k.setWorkload(t, "gated", kueue.QuotaReserved, []string{withQuota}, pending)
	d, _ := k.checked(t, "gated", kueue.Ready, "holds")
	k.report(t, d, v1alpha1.DispatchMirrored, "True", "")
	k.setWorkload(t, "gated", kueue.QuotaReserved, []string{withQuota}, pending)
	if d := k.placed(t, "gated", 1); d.Spec.Eviction == nil || d.Spec.Eviction.Reason != v1alpha1.EvictionSuspended {
		t.Errorf("spec.eviction is %+v", d.Spec.Eviction)
	}
}

// A job that no worker could take gives its quota back after a minute, and for longer each time. A job that has become
// possible meanwhile does not.
func TestQuotaIsGivenBack(t *testing.T) {
	k := newScene(t).withKueue(t)
	k.read(t)
	huge := func(job *trainer.TrainJob) {
		job.Spec.Trainer.ResourcesPerNode.Requests[gpu] = resource.MustParse("16")
		job.Spec.Trainer.ResourcesPerNode.Limits[gpu] = resource.MustParse("16")
	}
	k.submit(t, "huge", huge, queued, suspendedJob)
	k.setWorkload(t, "huge", kueue.QuotaReserved, []string{withQuota}, pending)
	if _, result := k.checked(t, "huge", kueue.Pending, "NoFit"); result.RequeueAfter != hopelessTime {
		t.Errorf("it is looked at again after %s, want %s", result.RequeueAfter, hopelessTime)
	}
	k.clock.Step(hopelessTime)
	k.checked(t, "huge", kueue.Retry, "no worker could take")
	if check := k.checkState(t, "huge"); check["requeueAfterSeconds"] != int64(60) {
		t.Errorf("the check is %v, want another try after a minute", check)
	}
	k.setRetries(t, "huge", 2)
	k.checked(t, "huge", kueue.Retry, "no worker could take")
	if check := k.checkState(t, "huge"); check["requeueAfterSeconds"] != int64(240) {
		t.Errorf("the check is %v, want another try after four minutes", check)
	}
	k.setRetries(t, "huge", 3)
	job := k.job(t, "huge")
	job.Spec.Trainer.ResourcesPerNode.Requests[gpu] = resource.MustParse("8")
	job.Spec.Trainer.ResourcesPerNode.Limits[gpu] = resource.MustParse("8")
	must(t, k.hub.Update(t.Context(), job))
	if d, _ := k.checked(t, "huge", kueue.Ready, "holds"); d.Spec.Cluster == "" {
		t.Error("the job is not placed")
	}
}

// setRetries gives a job quota again after its check has given it back some times.
func (k *kueueAPI) setRetries(t *testing.T, job string, retries int64) {
	t.Helper()
	w := kueueObject("kueue.x-k8s.io/v1beta2", "Workload", "trainjob-"+job)
	w.SetNamespace(k.namespace)
	must(t, k.hub.Get(t.Context(), client.ObjectKeyFromObject(w), w))
	w.Object["status"].(map[string]any)["admissionChecks"] = []any{
		map[string]any{"name": roomCheck, "state": kueue.Pending, "retryCount": retries},
	}
	must(t, k.hub.Status().Update(t.Context(), w))
	k.awaitStanding(t, job, kueue.QuotaReserved)
}
