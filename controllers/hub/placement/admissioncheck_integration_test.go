// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/kueue"
	"github.com/trainyard/trainyard/test/check"
)

const pending = roomCheck + ":" + kueues.CheckPending

func suspendedJob(job *trainer.TrainJob) { job.Spec.Suspend = new(true) }

// checkState returns the admission check of a job's Workload.
func (k *kueueAPI) checkState(t *testing.T, job string) map[string]any {
	t.Helper()
	w := kueueObject("kueue.x-k8s.io/v1beta2", "Workload", "trainjob-"+job)
	w.SetNamespace(k.Namespace)
	check.Must(t, k.Hub.Admin.Get(t.Context(), client.ObjectKeyFromObject(w), w))
	checks, _, err := unstructured.NestedSlice(w.Object, "status", "admissionChecks")
	check.Must(t, err)
	for _, admissionCheck := range checks {
		if fields := admissionCheck.(map[string]any); fields["name"] == roomCheck {
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
		admissionCheck := k.checkState(t, job)
		message, _ := admissionCheck["message"].(string)
		if !strings.Contains(message, words) {
			return message
		}
		return admissionCheck["state"].(string)
	}, check.Patience, 10*time.Millisecond).Should(gomega.Equal(state), "the admission check")
	before := k.checkState(t, job)
	k.reconcile(t, job)
	if after := k.checkState(t, job); !cmp.Equal(before, after) {
		t.Errorf("the check was written again (-before +after):\n%s", cmp.Diff(before, after))
	}
	return d, result
}

// A suspended job with quota waits on the one waiting list, and room is held for it before Kueue resumes it, in one
// attempt.
func TestRoomIsHeldForAJobWithQuota(t *testing.T) {
	k := newScene(t).withKueue(t)
	k.read(t)
	k.Submit(t, "first", large, pinned("region=east"))
	first := k.placed(t, "first", 1)
	k.Submit(t, "gated", large, pinned("region=east"), queued, suspendedJob)
	if d, _ := k.reconcile(t, "gated"); d != nil {
		t.Fatalf("the suspended job has the Dispatch %+v", d)
	}
	k.setWorkload(t, "gated", kueue.QuotaReserved, []string{withQuota}, pending)
	k.checked(t, "gated", kueues.CheckPending, "NoFit")
	if d := k.expect(t, "gated", v1alpha1.ReasonNoFit); len(d.Status.Explanation) == 0 {
		t.Error("the Dispatch does not say what each worker lacks")
	}
	k.Clock.Step(time.Hour) // The worker could take it, so it stays on the waiting list for as long as that takes.
	k.checked(t, "gated", kueues.CheckPending, "NoFit")

	check.Must(t, k.Hub.Admin.Delete(t.Context(), first))
	k.lose(first)
	d, _ := k.checked(t, "gated", kueues.CheckReady, "east")
	if d.Spec.Cluster != east || d.Spec.Attempt != 1 {
		t.Fatalf("the Dispatch is %+v, want it placed", d.Spec)
	}
	k.startWatch(t)
	if again, _ := k.reconcile(t, "gated"); !cmp.Equal(d, again) {
		t.Errorf("before Kueue is known to a new process, it wrote the Dispatch (-before +after):\n%s", cmp.Diff(d, again))
	}
	k.read(t)
	k.setWorkload(t, "gated", kueue.QuotaReserved, []string{withQuota}, pending) // The write of the state was lost.
	if again, _ := k.checked(t, "gated", kueues.CheckReady, "east"); !cmp.Equal(d, again) {
		t.Errorf("the new process wrote the Dispatch (-before +after):\n%s", cmp.Diff(d, again))
	}
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
	k.Submit(t, "gated", queued, suspendedJob)
	k.setWorkload(t, "gated", kueue.QuotaReserved, []string{withQuota}, pending)
	d, _ := k.checked(t, "gated", kueues.CheckReady, "holds")
	meta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{
		Type: v1alpha1.DispatchMirrored, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCopied,
	})
	d.Status.Cluster, d.Status.Attempt = d.Spec.Cluster, d.Spec.Attempt
	check.Must(t, k.Hub.Admin.Status().Update(t.Context(), d))
	k.setWorkload(t, "gated", kueue.QuotaReserved, []string{withQuota}, pending)
	if d := k.placed(t, "gated", 1); d.Spec.Eviction == nil || d.Spec.Eviction.Reason != v1alpha1.EvictionSuspended {
		t.Errorf("spec.eviction is %+v", d.Spec.Eviction)
	}
}

// A job that no worker could take gives its quota back after a minute, and later each time. A job that a worker could
// take by then does not.
func TestQuotaIsGivenBack(t *testing.T) {
	k := newScene(t).withKueue(t)
	k.read(t)
	k.Submit(t, "lost", pinned("region=nowhere"), queued, suspendedJob)
	k.setWorkload(t, "lost", kueue.QuotaReserved, []string{withQuota}, pending)
	if _, result := k.checked(t, "lost", kueues.CheckPending, "NoFit"); result.RequeueAfter != hopelessTime {
		t.Errorf("it is looked at again after %s, want %s", result.RequeueAfter, hopelessTime)
	}
	k.Clock.Step(hopelessTime)
	k.checked(t, "lost", kueues.CheckRetry, "no worker could take")
	if admissionCheck := k.checkState(t, "lost"); admissionCheck["requeueAfterSeconds"] != nil {
		t.Errorf("the check is %v, and a delay in it keeps Kueue from taking the quota back", admissionCheck)
	}
	k.setRetries(t, "lost", 2)
	if _, result := k.checked(t, "lost", kueues.CheckPending, "NoFit"); result.RequeueAfter != 4*hopelessTime {
		t.Errorf("the third time it is looked at again after %s, want %s", result.RequeueAfter, 4*hopelessTime)
	}
	k.Clock.Step(4 * hopelessTime)
	k.checked(t, "lost", kueues.CheckRetry, "no worker could take")
	k.setRetries(t, "lost", 3)
	job := k.TrainJob(t, "lost")
	old := job.DeepCopy()
	job.Annotations = nil
	check.Must(t, k.Hub.Admin.Patch(t.Context(), job, client.MergeFrom(old)))
	if d, _ := k.checked(t, "lost", kueues.CheckReady, "holds"); d.Spec.Cluster == "" {
		t.Error("the job is not placed")
	}
}

// setRetries gives a job quota again after its check has given it back some times.
func (k *kueueAPI) setRetries(t *testing.T, job string, retries int64) {
	t.Helper()
	w := kueueObject("kueue.x-k8s.io/v1beta2", "Workload", "trainjob-"+job)
	w.SetNamespace(k.Namespace)
	check.Must(t, k.Hub.Admin.Get(t.Context(), client.ObjectKeyFromObject(w), w))
	w.Object["status"].(map[string]any)["admissionChecks"] = []any{
		map[string]any{"name": roomCheck, "state": kueues.CheckPending, "retryCount": retries},
	}
	check.Must(t, k.Hub.Admin.Status().Update(t.Context(), w))
	k.awaitStanding(t, job, kueue.QuotaReserved)
}

// A waiting job follows the priority of its Workload, which Kueue's users may change.
func TestPriorityOfTheWorkload(t *testing.T) {
	k := newScene(t).withKueue(t)
	k.read(t)
	k.Submit(t, "job", pinned("region=nowhere"), queued, suspendedJob)
	k.setWorkload(t, "job", kueue.QuotaReserved, []string{withQuota}, pending)
	if d := k.expect(t, "job", v1alpha1.ReasonNoFit); d.Spec.Priority != 0 {
		t.Errorf("the priority is %d", d.Spec.Priority)
	}
	w := kueueObject("kueue.x-k8s.io/v1beta2", "Workload", "trainjob-job")
	w.SetNamespace(k.Namespace)
	check.Must(t, k.Hub.Admin.Patch(t.Context(), w, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"priority":70}}`))))
	gomega.NewWithT(t).Eventually(func() int32 {
		d, _ := k.reconcile(t, "job")
		return d.Spec.Priority
	}, check.Patience, 10*time.Millisecond).Should(gomega.BeEquivalentTo(70), "the priority on the Dispatch")
}

// A check of Trainyard is Active unless it asks for something that nobody would do. Other checks are left alone.
func TestActivityOfChecks(t *testing.T) {
	k := newScene(t).withKueue(t)
	reconciler := &checkReconciler{hub: k.Hub.Admin, recorder: k.Events, clock: k.Clock}
	for name, test := range map[string]struct {
		reason, controller string
		parameters         map[string]any
		want               string
	}{
		"Plain": {reason: "jobs are decided about", controller: kueue.CheckController, want: "True/Active"},
		"Parameters": {
			reason: "they would be ignored", controller: kueue.CheckController, want: "False/InvalidParameters",
			parameters: map[string]any{"apiGroup": "trainyard.dev", "kind": "DispatchPolicy", "name": "fast"},
		},
		"Other": {reason: "its controller says so", controller: "example.com/other"},
	} {
		t.Run(name, func(t *testing.T) {
			admissionCheck := kueueObject("kueue.x-k8s.io/v1beta2", "AdmissionCheck", strings.ToLower(name))
			admissionCheck.Object["spec"] = map[string]any{"controllerName": test.controller}
			if test.parameters != nil {
				admissionCheck.Object["spec"].(map[string]any)["parameters"] = test.parameters
			}
			check.Must(t, k.Hub.Admin.Create(t.Context(), admissionCheck))
			t.Cleanup(func() { check.Must(t, k.Hub.Admin.Delete(context.WithoutCancel(t.Context()), admissionCheck)) })
			var versions []string
			for range 2 {
				_, err := reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(admissionCheck)})
				check.Must(t, err)
				check.Must(t, k.Hub.Admin.Get(t.Context(), client.ObjectKeyFromObject(admissionCheck), admissionCheck))
				versions = append(versions, admissionCheck.GetResourceVersion())
			}
			got := ""
			conditions, _, _ := unstructured.NestedSlice(admissionCheck.Object, "status", "conditions")
			for _, c := range conditions {
				fields := c.(map[string]any)
				got = fmt.Sprintf("%s/%s", fields["status"], fields["reason"])
			}
			if got != test.want {
				t.Errorf("the condition is %q, want %q: %s", got, test.want, test.reason)
			}
			if versions[0] != versions[1] {
				t.Error("the second reconcile wrote it again")
			}
		})
	}
}
