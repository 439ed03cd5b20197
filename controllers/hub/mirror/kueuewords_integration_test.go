// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
)

const (
	notNow = "couldn't assign flavors to pod set node: insufficient unused quota for cpu in flavor a, 1 more needed"
	never  = "LocalQueue gpus doesn't exist"
)

var workloads = schema.GroupKind{Group: "kueue.x-k8s.io", Kind: "Workload"}

// workloadReader counts the reads of Workloads, and refuses them while it is closed.
type workloadReader struct {
	client.Reader
	reads  int
	closed bool
}

// List implements client.Reader.
func (r *workloadReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if list.GetObjectKind().GroupVersionKind().GroupKind() == workloads {
		r.reads++
		if r.closed {
			return apierrors.NewForbidden(schema.GroupResource{Group: "kueue.x-k8s.io", Resource: "workloads"}, "", nil)
		}
	}
	return r.Reader.List(ctx, list, options...)
}

// newHeldScene makes a scene whose copy Kueue on the worker has suspended.
func newHeldScene(t *testing.T, with setting) (*scene, *workloadReader) {
	t.Helper()
	s := newScene(t, with)
	s.installKueue(t)
	cached, err := s.worker.Connection.Client()
	must(t, err)
	reader := &workloadReader{Reader: s.worker.Admin}
	s.options.Worker = stuckWorker{cached: cached, live: reader}
	s.restart()
	s.reconcile(t)
	s.suspendCopy(t)
	return s, reader
}

// says makes Kueue say something about the copy's quota.
func (s *scene) says(t *testing.T, workload *unstructured.Unstructured, reason, message string) {
	t.Helper()
	workload.Object["status"] = map[string]any{"conditions": []any{map[string]any{
		"type": "QuotaReserved", "status": "False", "reason": reason, "message": message, "lastTransitionTime": "2026-01-02T03:04:05Z",
	}}}
	must(t, s.worker.Admin.Update(t.Context(), workload))
}

func (s *scene) expectQueued(t *testing.T, reason, words string) {
	t.Helper()
	d := s.dispatch(t)
	mirrored := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchMirrored)
	if d.Status.Phase != v1alpha1.PhaseQueued || d.Status.Reason != reason || mirrored == nil ||
		mirrored.Status != metav1.ConditionTrue || !strings.Contains(mirrored.Message, words) {
		t.Errorf("the Dispatch says %s/%s and %+v, want Queued/%s with %q", d.Status.Phase, d.Status.Reason, mirrored, reason, words)
	}
}

// What Kueue says of a copy that it holds is on the Dispatch. The Workload is read when the copy changes, and then with
// a back-off.
func TestDispatchQuotesKueue(t *testing.T) {
	s, reader := newHeldScene(t, setting{})
	workload := s.createWorkload(t)
	s.says(t, workload, "Pending", notNow)
	s.Clock.Step(time.Minute)
	if result := s.reconcile(t); result.RequeueAfter <= 0 || result.RequeueAfter > 5*time.Second {
		t.Errorf("the next look is after %s, want 5s", result.RequeueAfter)
	}
	s.expectQueued(t, v1alpha1.ReasonWaitingForQuota, notNow)
	check.Equal(t, 1, reader.reads, "how often Workloads were read")
	since := meta.FindStatusCondition(s.dispatch(t).Status.Conditions, v1alpha1.DispatchMirrored).LastTransitionTime

	s.says(t, workload, "Inadmissible", "ClusterQueue team is stopped")
	for range 3 {
		s.expectQuiet(t, "the last words count for a while")
	}
	for range 2 { // The words are gathered like steps.
		s.Clock.Step(5 * time.Second)
		s.reconcile(t)
	}
	s.expectQueued(t, v1alpha1.ReasonInadmissible, "is stopped")
	check.Equal(t, nil, s.dispatch(t).Spec.Eviction, "a stopped queue ends the attempt")
	check.Equal(t, 2, reader.reads, "how often Workloads were read")
	if now := meta.FindStatusCondition(s.dispatch(t).Status.Conditions, v1alpha1.DispatchMirrored).LastTransitionTime; !now.Equal(&since) {
		t.Errorf("the time of the copy, from which admissionTimeout counts, was %s and is %s", since, now)
	}
	s.restart()
	s.expectQuiet(t, "another process reads the same")

	s.edit(t, func(copy *unstructured.Unstructured) { specOf(copy)["suspend"] = false })
	s.reconcile(t)
	s.Clock.Step(20 * time.Second) // The other process has just found the copy.
	s.reconcile(t)
	d := s.dispatch(t)
	mirrored := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchMirrored)
	if d.Status.Phase != v1alpha1.PhaseStarting || mirrored.Reason != v1alpha1.ReasonCopied || strings.Contains(mirrored.Message, "stopped") {
		t.Errorf("the copy runs, and the Dispatch says %s and %+v", d.Status.Phase, mirrored)
	}
	before := reader.reads
	s.Clock.Step(time.Hour)
	s.expectQuiet(t, "the copy runs")
	check.Equal(t, before, reader.reads, "Workloads are read for a copy that runs")
}

// If Kueue will never admit a copy, the worker has refused it, in Kueue's words.
func TestCopyThatKueueNeverAdmits(t *testing.T) {
	s, _ := newHeldScene(t, setting{})
	s.says(t, s.createWorkload(t), "Inadmissible", never)
	s.reconcile(t)
	d := s.dispatch(t)
	if d.Spec.Eviction == nil || d.Spec.Eviction.Reason != v1alpha1.EvictionRejected || !strings.Contains(d.Spec.Eviction.Message, never) {
		t.Fatalf("the eviction is %+v, want Rejected with %q", d.Spec.Eviction, never)
	}
	s.expectRefused(t, never)
}

// expectRefused completes the deletion of an attempt's copy, and expects that the attempt ends as a refusal.
func (s *scene) expectRefused(t *testing.T, words string) {
	t.Helper()
	s.reconcile(t)
	s.collect(t)
	s.reconcileGone(t)
	s.expectEnd(t, v1alpha1.OutcomeRejected, words)
	refusals := s.dispatch(t).Status.Refusals
	if len(refusals) != 1 || refusals[0].Cluster != workerName || refusals[0].Count != 1 || !strings.Contains(refusals[0].Message, words) {
		t.Errorf("refusals are %+v, want one of the worker with %q", refusals, words)
	}
}

// Kueue makes no Workload for a copy whose WorkloadPriorityClass the worker does not have.
func TestMissingWorkloadPriorityClass(t *testing.T) {
	classed := setting{labels: map[string]string{v1alpha1.LabelWorkloadPriorityClass: "high"}}
	crd := strings.NewReplacer("workloads.", "workloadpriorityclasses.", "kind: Workload,", "kind: WorkloadPriorityClass,",
		"WorkloadList", "WorkloadPriorityClassList", "plural: workloads", "plural: workloadpriorityclasses", "singular: workload}",
		"singular: workloadpriorityclass}", "Namespaced", "Cluster").Replace(workloadCRD)
	class := &unstructured.Unstructured{}
	class.SetGroupVersionKind(schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "WorkloadPriorityClass"})
	class.SetName("high")
	t.Run("Missing", func(t *testing.T) {
		s, _ := newHeldScene(t, classed)
		must(t, s.worker.Cluster.Apply(t.Context(), crd))
		s.reconcile(t)
		if d := s.dispatch(t); d.Spec.Eviction != nil {
			t.Fatalf("Kueue had no time to make a Workload: %+v", d.Spec.Eviction)
		}
		eventually(t, "API of classes", func(g gomega.Gomega) {
			s.Clock.Step(5 * time.Second)
			s.reconcile(t)
			d := s.dispatch(t)
			g.Expect(d.Spec.Eviction).NotTo(gomega.BeNil())
			g.Expect(d.Spec.Eviction.Reason).To(gomega.Equal(v1alpha1.EvictionRejected))
		})
		s.expectRefused(t, "the worker has no WorkloadPriorityClass high")
	})
	t.Run("Default", func(t *testing.T) { // The hub's Kueue 0.20 has set it, and nobody has asked for it.
		s, _ := newHeldScene(t, setting{labels: map[string]string{v1alpha1.LabelWorkloadPriorityClass: "default"}})
		must(t, s.worker.Cluster.Apply(t.Context(), crd))
		s.reconcile(t)
		eventually(t, "copy without a class", func(g gomega.Gomega) {
			s.Clock.Step(5 * time.Second)
			s.reconcile(t)
			g.Expect(s.copy(t).GetLabels()).NotTo(gomega.HaveKey(v1alpha1.LabelWorkloadPriorityClass))
		})
		s.reconcile(t)
		s.expectQuiet(t, "the copy needs no class")
		check.Equal(t, nil, s.dispatch(t).Spec.Eviction, "nobody has asked for the class")
	})
	t.Run("There", func(t *testing.T) {
		s, _ := newHeldScene(t, classed)
		must(t, s.worker.Cluster.Apply(t.Context(), crd))
		eventually(t, "class", func(g gomega.Gomega) {
			g.Expect(s.worker.Admin.Create(t.Context(), class.DeepCopy())).To(gomega.Succeed())
		})
		t.Cleanup(func() { must(t, s.worker.Admin.Delete(context.Background(), class)) })
		for range 2 {
			s.reconcile(t)
			s.Clock.Step(6 * time.Second)
		}
		check.Equal(t, nil, s.dispatch(t).Spec.Eviction, "the class is there")
	})
}

// Kueue 0.19 suspends a copy that is to come into a queue, and makes no Workload in a namespace that it does not manage.
// The copy must not run outside of every quota. A copy that has started is somebody's to suspend.
func TestNamespaceThatKueueDoesNotManage(t *testing.T) {
	queued := setting{labels: map[string]string{v1alpha1.LabelLocalQueue: "gpus"}}
	t.Run("New", func(t *testing.T) {
		s, _ := newHeldScene(t, queued)
		s.reconcile(t)
		s.Clock.Step(29 * time.Second)
		s.reconcile(t)
		if d := s.dispatch(t); d.Spec.Eviction != nil {
			t.Fatalf("Kueue had no time to make a Workload: %+v", d.Spec.Eviction)
		}
		s.Clock.Step(time.Second)
		s.reconcile(t)
		if d := s.dispatch(t); d.Spec.Eviction == nil || d.Spec.Eviction.Reason != v1alpha1.EvictionRejected {
			t.Fatalf("the eviction is %+v, want Rejected", d.Spec.Eviction)
		}
		if !trainjobs.Suspended(s.copy(t)) {
			t.Error("the copy runs outside of every quota")
		}
		s.expectRefused(t, "managedJobsNamespaceSelector")
	})
	t.Run("Started", func(t *testing.T) {
		s := newScene(t, queued)
		s.installKueue(t)
		s.reconcile(t)
		s.jobSet(t, 0, resumedAt)
		s.trains(t, "ready", "")
		s.run(t)
		s.suspendCopy(t)
		for range 2 {
			s.reconcile(t)
			s.Clock.Step(time.Minute)
		}
		s.reconcile(t)
		if trainjobs.Suspended(s.copy(t)) {
			t.Error("the copy stays suspended")
		}
	})
}

// A hub that may not read Workloads says so, and what to do. With the right it quotes Kueue.
func TestWorkloadsThatMayNotBeRead(t *testing.T) {
	s, reader := newHeldScene(t, setting{})
	reader.closed = true
	workload := s.createWorkload(t)
	s.says(t, workload, "Pending", notNow)
	s.Clock.Step(time.Minute)
	s.reconcile(t)
	s.expectQueued(t, v1alpha1.ReasonHeldByWorker, "kubectl apply -k config/worker")
	reader.closed = false
	for range 2 {
		s.Clock.Step(5 * time.Second)
		s.reconcile(t)
	}
	s.expectQueued(t, v1alpha1.ReasonWaitingForQuota, notNow)
}

// Where the hub caches Workloads to count quota, the words of Kueue cost no request.
func TestWorkloadFromTheCache(t *testing.T) {
	s, counting := newScene(t, setting{}), v1alpha1.ClusterName("counting")
	s.installQuota(t)
	s.Fleet.Ensure(counting, remote.Credentials{Config: s.worker.Cluster.Config, Fingerprint: "admin"}, s.worker.ID,
		remote.CountQuota(true))
	t.Cleanup(func() { s.Fleet.Remove(counting) })
	connection, _ := s.Fleet.Get(counting)
	eventually(t, "cache of Workloads", func(g gomega.Gomega) {
		err := connection.Cache().Get(context.Background(), s.key, newQuotaWorkload())
		g.Expect(apierrors.IsNotFound(err)).To(gomega.BeTrue(), "%v", err)
		g.Expect(connection.Status().State).To(gomega.Equal(remote.Connected))
	})
	cached, err := connection.Client()
	must(t, err)
	reader := &workloadReader{Reader: s.worker.Admin}
	s.options.Worker = stuckWorker{cached: cached, live: reader}
	s.restart()
	s.reconcile(t)
	s.suspendCopy(t)
	workload := newQuotaWorkload()
	workload.SetNamespace(s.key.Namespace)
	workload.SetName("trainjob-" + s.key.Name)
	workload.SetLabels(map[string]string{"kueue.x-k8s.io/job-uid": string(s.copy(t).GetUID())})
	workload.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(s.copy(t), trainjobs.GroupVersionKind)})
	workload.Object["status"] = map[string]any{
		"conditions": []any{map[string]any{
			"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z",
		}},
		"admissionChecks": []any{map[string]any{"name": "nodes", "state": "Pending", "message": "two nodes are made"}},
	}
	must(t, s.worker.Admin.Create(t.Context(), workload))
	eventually(t, "Workload in the cache", func(g gomega.Gomega) {
		g.Expect(connection.Cache().Get(context.Background(), client.ObjectKeyFromObject(workload), newQuotaWorkload())).To(gomega.Succeed())
		seen := trainjobs.New()
		g.Expect(cached.Get(context.Background(), s.key, seen)).To(gomega.Succeed())
		g.Expect(trainjobs.Suspended(seen)).To(gomega.BeTrue())
	})
	s.Clock.Step(time.Minute)
	s.reconcile(t)
	s.expectQueued(t, v1alpha1.ReasonAdmissionChecks, "nodes (two nodes are made)")
	if reader.reads != 0 {
		t.Errorf("Workloads were read %d times from the API server", reader.reads)
	}
}

// installQuota gives the worker the CRDs of Kueue that are cached to count quota, until the test ends.
func (s *scene) installQuota(t *testing.T) {
	t.Helper()
	must(t, s.worker.Cluster.ApplyFiles(t.Context(), "../../../capacity/testdata/kueue-crds.yaml"))
	t.Cleanup(func() {
		all := &unstructured.UnstructuredList{}
		all.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinitionList"})
		must(t, s.worker.Admin.List(context.Background(), all))
		for i := range all.Items {
			if strings.HasSuffix(all.Items[i].GetName(), "."+workloads.Group) {
				must(t, s.worker.Admin.Delete(context.Background(), &all.Items[i]))
			}
		}
		eventually(t, "the end of Kueue's API", func(g gomega.Gomega) {
			err := s.worker.Admin.Get(context.Background(), s.key, newQuotaWorkload())
			g.Expect(err != nil && !strings.Contains(err.Error(), `"`+s.key.Name+`" not found`)).To(gomega.BeTrue(), "%v", err)
		})
	})
}

func newQuotaWorkload() *unstructured.Unstructured {
	workload := &unstructured.Unstructured{}
	workload.SetGroupVersionKind(kueues.KindWorkload.GVK())
	return workload
}
