// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// Kueue on the worker suspends a copy when it is created, and makes a Workload for it. The copy is left to Kueue, its
// Dispatch says that the worker holds the job, and says Starting when Kueue lets it run.
func TestCopyInAQueueOfTheWorker(t *testing.T) {
	s := newScene(t, setting{})
	s.installKueue(t)
	recorder := events.NewFakeRecorder(10)
	s.options.Recorder = recorder
	s.restart()
	s.getUnderWay(t)
	s.suspendCopy(t)
	version := s.copy(t).GetResourceVersion()
	if result := s.reconcile(t); result.RequeueAfter == 0 {
		t.Error("Kueue has made no Workload yet, and nobody looks again")
	}
	s.createWorkload(t)
	s.Clock.Step(time.Minute)
	s.reconcile(t)
	if now := s.copy(t); now.GetResourceVersion() != version {
		t.Errorf("the copy was written, against Kueue (spec.suspend: %t)", trainjobs.Suspended(now))
	}
	if status := s.dispatch(t).Status; status.Phase != v1alpha1.PhaseQueued || status.Reason != v1alpha1.ReasonHeldByWorker {
		t.Errorf("the Dispatch says %s/%s, want Queued/HeldByWorker", status.Phase, status.Reason)
	}
	s.expectQuiet(t, "the job is held")
	s.restart()
	s.expectQuiet(t, "the job is held, and this process has not seen the Workload before")

	s.edit(t, func(copy *unstructured.Unstructured) { // Kueue admits the copy.
		specOf(copy)["suspend"] = false
		specOf(copy)["runtimePatches"] = []any{map[string]any{"manager": "kueue.x-k8s.io/manager"}}
	})
	version = s.copy(t).GetResourceVersion()
	for range 2 {
		s.reconcile(t)
		s.Clock.Step(time.Minute)
	}
	if status := s.dispatch(t).Status; status.Phase != v1alpha1.PhaseRunning || status.Reason != v1alpha1.ReasonCopied {
		t.Errorf("the Dispatch says %s/%s, want Running/Copied", status.Phase, status.Reason)
	}
	check.Equal(t, version, s.copy(t).GetResourceVersion(), "the copy was written after Kueue had admitted it")
	if len(recorder.Events) > 0 {
		t.Errorf("something was told: %s", <-recorder.Events)
	}
}

// A suspended copy of which Kueue has no Workload was suspended by somebody else, whatever its labels say.
func TestSuspensionThatIsNotKueues(t *testing.T) {
	t.Run("NoKueue", func(t *testing.T) {
		s := newScene(t, setting{labels: map[string]string{"kueue.x-k8s.io/queue-name": "gpus"}})
		s.getUnderWay(t)
		s.suspendCopy(t)
		s.reconcile(t)
		if trainjobs.Suspended(s.copy(t)) {
			t.Error("the label of a queue of the hub keeps the copy suspended on a worker without Kueue")
		}
	})
	t.Run("NoWorkload", func(t *testing.T) {
		s := newScene(t, setting{})
		s.installKueue(t)
		s.getUnderWay(t)
		s.suspendCopy(t)
		s.reconcile(t)
		if !trainjobs.Suspended(s.copy(t)) {
			t.Error("Kueue had no time to make the Workload")
		}
		s.Clock.Step(time.Minute)
		s.reconcile(t)
		if trainjobs.Suspended(s.copy(t)) {
			t.Error("the copy stays suspended")
		}
	})
	t.Run("WorkloadOfAnother", func(t *testing.T) {
		s := newScene(t, setting{})
		s.installKueue(t)
		s.getUnderWay(t)
		s.suspendCopy(t)
		workload := s.createWorkload(t)
		workload.SetOwnerReferences(nil)
		must(t, s.worker.Admin.Update(t.Context(), workload))
		for range 2 {
			s.reconcile(t)
			s.Clock.Step(time.Minute)
		}
		if trainjobs.Suspended(s.copy(t)) {
			t.Error("a label on an object of somebody keeps the copy suspended")
		}
	})
}

// A user adds something to a running job on the hub, where nothing refuses it. That is no edit of the copy.
func TestFieldAddedOnTheHub(t *testing.T) {
	s := newScene(t, setting{})
	recorder := events.NewFakeRecorder(10)
	s.options.Recorder = recorder
	s.restart()
	s.getUnderWay(t)
	job := s.job(t)
	specOf(job)["activeDeadlineSeconds"] = int64(3600)
	specOf(job)["runtimePatches"] = []any{map[string]any{"manager": "a.dev/b"}}
	must(t, s.Hub.Admin.Update(t.Context(), job))
	s.edit(t, func(copy *unstructured.Unstructured) { specOf(copy)["suspend"] = true }) // So that there is a generation to look at.
	for range 3 {
		s.reconcile(t)
	}
	if _, brought := specOf(s.copy(t))["activeDeadlineSeconds"]; brought {
		t.Error("the field was brought to a copy that runs")
	}
	s.expectEvent(t, recorder, `Warning ChangeNotCopied The copy on worker "worker" does not get the change of spec.activeDeadlineSeconds, `+
		`spec.runtimePatches[a.dev/b], because it was made before; to bring the change to a new copy, suspend the TrainJob, and resume it`)
	s.expectEvent(t, recorder, `Warning CopyRestored Undid changes that somebody made to the copy on worker "worker": spec.suspend`)
	if len(recorder.Events) > 0 {
		t.Errorf("the worker is said to have edited the copy: %s", <-recorder.Events)
	}
}

// A job that is suspended on the hub loses its copy. As long as pods of it run, the hub's job says so, because a queue
// on the hub gives the job's quota away when it does not.
func TestSuspendedJobLosesItsCopy(t *testing.T) {
	s := newScene(t, setting{})
	recorder := events.NewFakeRecorder(10)
	s.options.Recorder = recorder
	s.restart()
	s.getUnderWay(t)
	pod := s.createPod(t)
	job := s.job(t)
	specOf(job)["suspend"] = true
	must(t, s.Hub.Admin.Update(t.Context(), job))
	s.reconcile(t)
	if copy := s.copy(t); copy == nil || trainjobs.Suspended(copy) || copy.GetDeletionTimestamp() != nil {
		t.Errorf("the mirror acted before the eviction was on record: %v", copy)
	}
	d := s.dispatch(t)
	d.Spec.Eviction = &v1alpha1.Eviction{Reason: v1alpha1.EvictionSuspended, Message: "the TrainJob has spec.suspend: true"}
	must(t, s.Hub.Admin.Update(t.Context(), d))
	s.reconcile(t)
	jobs, _, _ := unstructured.NestedSlice(s.job(t).Object, "status", "jobsStatus")
	if len(jobs) != 1 || jobs[0].(map[string]any)["ready"] != int64(1) {
		t.Errorf("jobsStatus of the hub's job is %v while a pod runs", jobs)
	}
	s.collect(t)
	s.expectQuiet(t, "a pod of it runs")
	s.deletePod(t, pod)
	s.reconcileGone(t)
	s.expectEnd(t, v1alpha1.OutcomeSuspended, "spec.suspend: true")
	s.expectNoStatus(t)
	if refusals := s.dispatch(t).Status.Refusals; len(refusals) > 0 {
		t.Errorf("that the user suspends the job counts against the worker: %+v", refusals)
	}
	s.expectEvent(t, recorder, "Normal Suspended Stopped on worker worker: the TrainJob has spec.suspend: true")
}

// A job that is suspended before its copy is there gets no copy.
func TestNoCopyOfASuspendedJob(t *testing.T) {
	s := newScene(t, setting{spec: map[string]any{"suspend": true}})
	for range 2 {
		s.reconcile(t)
	}
	check.Equal(t, nil, s.copy(t), "the job is suspended, and has the copy")
}

// installKueue gives the worker the CRD of Kueue's Workloads, until the test ends.
func (s *scene) installKueue(t *testing.T) {
	t.Helper()
	must(t, s.worker.Cluster.Apply(t.Context(), workloadCRD))
	list := newWorkload()
	served := func(g gomega.Gomega, want bool) {
		err := s.worker.Admin.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: "none"}, list)
		// An API server that does not serve a kind gives another error than for a missing object.
		g.Expect(err != nil && strings.Contains(err.Error(), `"none" not found`)).To(gomega.Equal(want), "%v", err)
	}
	t.Cleanup(func() {
		crd := &unstructured.Unstructured{}
		crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		crd.SetName("workloads.kueue.x-k8s.io")
		must(t, s.worker.Admin.Delete(context.Background(), crd))
		eventually(t, "the end of Kueue's API", func(g gomega.Gomega) { served(g, false) })
	})
	eventually(t, "Kueue's API", func(g gomega.Gomega) { served(g, true) })
}

// workloadCRD is as much of Kueue's as the mirror looks at.
const workloadCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: workloads.kueue.x-k8s.io, annotations: {api-approved.kubernetes.io: "https://github.com/kubernetes-sigs/kueue"}}
spec:
  group: kueue.x-k8s.io
  names: {kind: Workload, listKind: WorkloadList, plural: workloads, singular: workload}
  scope: Namespaced
  versions:
  - name: v1beta2
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

func (s *scene) suspendCopy(t *testing.T) {
	t.Helper()
	s.edit(t, func(copy *unstructured.Unstructured) { specOf(copy)["suspend"] = true })
}

// createWorkload makes the Workload of the copy as Kueue does.
func (s *scene) createWorkload(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	copy := s.copy(t)
	workload := newWorkload()
	workload.SetNamespace(s.key.Namespace)
	workload.SetName("trainjob-" + s.key.Name)
	workload.SetLabels(map[string]string{"kueue.x-k8s.io/job-uid": string(copy.GetUID())})
	workload.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(copy, trainjobs.GroupVersionKind)})
	must(t, s.worker.Admin.Create(t.Context(), workload))
	return workload
}

func newWorkload() *unstructured.Unstructured {
	workload := &unstructured.Unstructured{}
	workload.SetGroupVersionKind(schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "Workload"})
	return workload
}
