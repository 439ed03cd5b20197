// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hubcache

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/test/check"
)

var began = time.Unix(1_790_000_000, 0)

func numbered(kind string, number int) types.UID {
	return types.UID(fmt.Sprintf("%08x-0000-4000-8000-%s%08x", number, kind, number))
}

// finished returns a Dispatch as mirror leaves it, with all that it may have.
func finished(number int) *v1alpha1.Dispatch {
	name := fmt.Sprintf("job-%d", number)
	origin := numbered("aaaa", number)
	d := &v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, UID: numbered("dddd", number), ResourceVersion: fmt.Sprint(1000 + number), Generation: 3,
			CreationTimestamp: metav1.Time{Time: began}, Finalizers: []string{v1alpha1.FinalizerCopy},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: trainjobs.GroupVersionKind.GroupVersion().String(), Kind: trainjobs.GroupVersionKind.Kind, Name: name, UID: origin,
				Controller: new(true), BlockOwnerDeletion: new(true),
			}},
			Annotations: map[string]string{v1alpha1.AnnotationDecision: "placed on worker east"},
		},
		Spec: v1alpha1.DispatchSpec{
			TrainJob: v1alpha1.TrainJobReference{Name: name, UID: origin}, Cluster: "east", ClusterID: "cluster-of-east", Attempt: 2,
			Priority: 7, Failover: v1alpha1.FailoverFenced, PodSets: []v1alpha1.PodSet{{Name: "node", Count: 2}},
		},
		Status: v1alpha1.DispatchStatus{
			CopyUID: numbered("cccc", number), StartTime: &metav1.Time{Time: began}, Steps: []v1alpha1.Step{{Name: "node"}},
			History: []v1alpha1.Attempt{{
				Attempt: 1, Cluster: "west", To: metav1.Time{Time: began}, Outcome: v1alpha1.OutcomePreempted, Message: "made room",
			}},
		},
	}
	end := began.Add(time.Duration(number) * time.Second)
	record.Finish(&d.Status, d, &metav1.Condition{Type: v1alpha1.ReasonComplete, Message: "it is Complete"}, end)
	return d
}

// ended returns a TrainJob that has ended.
func ended(number int) *unstructured.Unstructured {
	job := trainjobs.New()
	job.SetNamespace("team")
	job.SetName(fmt.Sprintf("job-%d", number))
	job.SetUID(numbered("aaaa", number))
	job.SetResourceVersion(fmt.Sprint(2000 + number))
	job.SetGeneration(2)
	job.SetCreationTimestamp(metav1.Time{Time: began})
	job.SetLabels(map[string]string{"team": "vision"})
	job.SetAnnotations(map[string]string{v1alpha1.AnnotationTTL: "60", "run": fmt.Sprint(number)})
	job.Object["spec"] = map[string]any{"managedBy": v1alpha1.ManagedByMultiKueue, "runtimeRef": map[string]any{"name": "torch"}}
	job.Object["status"] = map[string]any{
		"conditions": []any{
			map[string]any{"type": "Suspended", "status": "False", "reason": "Resumed", "message": "", "lastTransitionTime": fmt.Sprint(number)},
			map[string]any{"type": "Complete", "status": "True", "reason": "Done", "message": "it is", "lastTransitionTime": fmt.Sprint(number)},
		},
		"jobsStatus": []any{map[string]any{"name": "node", "succeeded": int64(2)}},
	}
	return job
}

// through is what comes out of the cache for what the API server has sent.
func through(t *testing.T, before toolscache.TransformFunc, sent any) (stored, read any) {
	t.Helper()
	stored, err := packing(before)(sent)
	check.Must(t, err)
	again, err := packing(before)(stored)
	check.Must(t, err)
	if again != stored {
		t.Error("the second call of the transform has changed the object")
	}
	return stored, unpack(stored)
}

func TestPackDispatch(t *testing.T) {
	want := finished(1)
	want.Generation, want.Annotations, want.Spec.PodSets = 0, nil, nil
	want.Status.Steps, want.Status.StartTime = nil, nil
	for i := range want.Status.Conditions {
		condition := &want.Status.Conditions[i]
		condition.ObservedGeneration = 0
		if condition.Type != v1alpha1.DispatchFinished {
			condition.LastTransitionTime = metav1.Time{}
		}
	}
	stored, read := through(t, StripDispatch, finished(1))
	if _, ok := stored.(packed); !ok {
		t.Errorf("a finished Dispatch is stored as %T", stored)
	}
	check.Diff(t, want, read.(*v1alpha1.Dispatch), "a finished Dispatch is read as")
	d := read.(*v1alpha1.Dispatch)
	if record.StateOf(d) != record.Finished || d.RecordedCopy() != numbered("cccc", 1) || !record.IsGuarded(d) {
		t.Errorf("it is %s, with the copy %q", record.StateOf(d), d.RecordedCopy())
	}
	key, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(stored)
	check.Must(t, err)
	check.Equal(t, "team/job-1", key, "the key in the store")
}

func TestPackTrainJob(t *testing.T) {
	want := ended(1)
	want.SetAnnotations(map[string]string{v1alpha1.AnnotationTTL: "60"})
	want.Object["spec"] = map[string]any{"managedBy": v1alpha1.ManagedByMultiKueue}
	want.Object["status"] = map[string]any{"conditions": []any{
		map[string]any{"type": "Complete", "status": "True", "reason": "Done", "message": "it is"},
	}}
	stored, read := through(t, trainjobs.StripOf(v1alpha1.ManagedByMultiKueue), ended(1))
	if _, ok := stored.(packed); !ok {
		t.Errorf("a TrainJob that has ended is stored as %T", stored)
	}
	check.Diff(t, want, read.(*unstructured.Unstructured), "a TrainJob that has ended is read as")
}

func TestStaysAsItIs(t *testing.T) {
	now := metav1.Now()
	for name, test := range map[string]struct {
		reason string
		object metav1.Object
	}{
		"Live":       {reason: "parts of it are written", object: changed(finished(1), func(d *v1alpha1.Dispatch) { d.Status.Conditions = nil })},
		"Leaving":    {reason: "its finalizer will be removed", object: changed(finished(1), func(d *v1alpha1.Dispatch) { d.DeletionTimestamp = &now })},
		"OtherUID":   {reason: "it would not be the same", object: changed(finished(1), func(d *v1alpha1.Dispatch) { d.UID = "AAAA" })},
		"UpperUID":   {reason: "nor this", object: changed(finished(1), func(d *v1alpha1.Dispatch) { d.Status.CopyUID = "0000000A-0000-4000-8000-aaaa00000001" })},
		"Version":    {reason: "it is no number", object: changed(finished(1), func(d *v1alpha1.Dispatch) { d.ResourceVersion = "007" })},
		"LiveJob":    {reason: "its spec is read", object: changed(ended(1), func(j *unstructured.Unstructured) { delete(j.Object, "status") })},
		"LeavingJob": {reason: "its finalizers are read", object: changed(ended(1), func(j *unstructured.Unstructured) { j.SetDeletionTimestamp(&now) })},
	} {
		t.Run(name, func(t *testing.T) {
			if stored, _ := through(t, nil, test.object); stored != any(test.object) {
				t.Errorf("it is packed, although %s", test.reason)
			}
		})
	}
}

func changed[T any](object T, change func(T)) T {
	change(object)
	return object
}

// The state that a handler gets of an object whose deletion was missed is the stored one.
func TestUnpackLastState(t *testing.T) {
	stored, _ := through(t, nil, finished(1))
	last, _ := unpack(toolscache.DeletedFinalStateUnknown{Key: "team/job-1", Obj: stored}).(toolscache.DeletedFinalStateUnknown)
	if d, ok := last.Obj.(*v1alpha1.Dispatch); !ok || d.Name != "job-1" {
		t.Errorf("a handler gets %+v", last)
	}
}

// An unpacked object is its reader's. Labels and other shared values are not: the caches say so.
func TestUnpackedAreApart(t *testing.T) {
	stored, _ := through(t, nil, finished(1))
	first, second := unpack(stored).(*v1alpha1.Dispatch), unpack(stored).(*v1alpha1.Dispatch)
	first.Status.Conditions[0].Reason, first.Status.History[0].Attempt, first.OwnerReferences[0].Name = "Other", 9, "other"
	check.Diff(t, unpack(stored), any(second), "what another reader has got")
	job, _ := through(t, nil, ended(1))
	unpack(job).(*unstructured.Unstructured).SetName("other")
	check.Equal(t, "job-1", unpack(job).(*unstructured.Unstructured).GetName(), "the name that another reader gets")
}

func TestGivenUp(t *testing.T) {
	d := finished(1)
	d.Spec.Cluster, d.Spec.ClusterID, d.Status = "", "", v1alpha1.DispatchStatus{}
	record.GiveUp(&d.Status, d, record.Why{Reason: v1alpha1.ReasonNoFit, Message: "full"}, began)
	record.FinishGivenUp(&d.Status, d, &metav1.Condition{Type: v1alpha1.ReasonFailed, Message: "given up"}, began)
	stored, read := through(t, StripDispatch, d.DeepCopy())
	if _, ok := stored.(packed); !ok {
		t.Errorf("it is stored as %T", stored)
	}
	got := read.(*v1alpha1.Dispatch)
	check.Diff(t, d.Status.History, got.Status.History, "history")
	check.Equal(t, meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchFinished).Reason,
		meta.FindStatusCondition(got.Status.Conditions, v1alpha1.DispatchFinished).Reason, "reason")
}

// TestHeapOfFinishedJobs holds what a hub with many finished jobs costs the manager: 3.1 KB a job before they were
// packed. It counts what the stores of the two informers have.
func TestHeapOfFinishedJobs(t *testing.T) {
	const number, most = 5_000, 775
	dispatches, jobs := toolscache.NewIndexer(toolscache.DeletionHandlingMetaNamespaceKeyFunc, toolscache.Indexers{
		toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc,
	}), toolscache.NewIndexer(toolscache.DeletionHandlingMetaNamespaceKeyFunc, toolscache.Indexers{
		toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc,
	})
	d, err := json.Marshal(finished(1))
	check.Must(t, err)
	before := heap()
	for i := range number {
		sent := &v1alpha1.Dispatch{} // As a decoder makes it: nothing is shared.
		check.Must(t, json.Unmarshal(d, sent))
		again := finished(i)
		sent.ObjectMeta, sent.Spec.TrainJob, sent.Status = again.ObjectMeta, again.Spec.TrainJob, again.Status
		stored, _ := packing(StripDispatch)(sent)
		check.Must(t, dispatches.Add(stored))
		stored, _ = packing(trainjobs.StripOf(v1alpha1.ManagedByMultiKueue))(ended(i))
		check.Must(t, jobs.Add(stored))
	}
	got := (heap() - before) / number
	t.Logf("a finished job takes %d bytes", got)
	if got > most {
		t.Errorf("a finished job takes %d bytes, want at most %d", got, most)
	}
	runtime.KeepAlive(dispatches)
	runtime.KeepAlive(jobs)
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // Cleanups of the first have ended.
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// What nobody has any more is not kept for the next one.
func TestShapesAreForgotten(t *testing.T) {
	known := &shapes[string]{}
	kept := known.of(new("kept"))
	for i := range 100 {
		known.of(new(fmt.Sprint(i)))
	}
	if known.of(new("kept")) != kept {
		t.Error("two equal shapes are not the same")
	}
	check.Eventually(t, "shapes to be forgotten", func(g gomega.Gomega) {
		runtime.GC()
		known.mu.Lock()
		defer known.mu.Unlock()
		g.Expect(known.known).To(gomega.HaveLen(1))
	})
	runtime.KeepAlive(kept)
}
