// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// The owner reference keeps the job until its copy is gone.
func TestNew(t *testing.T) {
	job := &unstructured.Unstructured{}
	job.SetGroupVersionKind(trainjobs.GroupVersionKind)
	job.SetNamespace("ns")
	job.SetName("job")
	job.SetUID("uid")
	want := &v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "job",
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "TrainJob", Name: "job", UID: "uid",
				Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		Spec: v1alpha1.DispatchSpec{TrainJob: v1alpha1.TrainJobReference{Name: "job", UID: "uid"}, Attempt: 3},
	}
	check.Diff(t, want, New(job, 3), "New()")
}

// A job that is placed, withdrawn and placed again has nothing of an earlier attempt but its number.
func TestPlaceAndUnplace(t *testing.T) {
	reference := v1alpha1.TrainJobReference{Name: "job", UID: "uid"}
	podSets := []v1alpha1.PodSet{{Name: "node", Count: 2}}
	d := &v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"example.com/other"}, Annotations: map[string]string{"example.com/note": "kept"}},
		Spec:       v1alpha1.DispatchSpec{TrainJob: reference, Attempt: 1},
	}
	place := func(chosen v1alpha1.DispatchSpec) {
		t.Helper()
		Place(d, chosen, "the best")
		chosen.TrainJob = reference
		want := &v1alpha1.Dispatch{
			ObjectMeta: metav1.ObjectMeta{
				Finalizers:  []string{"example.com/other", v1alpha1.FinalizerCopy},
				Annotations: map[string]string{"example.com/note": "kept", v1alpha1.AnnotationDecision: "the best"},
			},
			Spec: chosen,
		}
		check.Diff(t, want, d, "Place()")
	}
	place(v1alpha1.DispatchSpec{
		Cluster: "east", ClusterID: "id", Attempt: 2, Priority: 7, PodSets: podSets,
		Failover: v1alpha1.FailoverFenced, LocalQueue: new(string),
	})
	Evict(d, v1alpha1.Eviction{Reason: v1alpha1.EvictionPreempted, Message: " words\n", For: "other"})
	check.Diff(t, &v1alpha1.Eviction{Reason: v1alpha1.EvictionPreempted, Message: "words", For: "other"}, d.Spec.Eviction,
		"Evict()")
	Unplace(d, 8, podSets[:0])
	want := &v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"example.com/other"}, Annotations: map[string]string{"example.com/note": "kept"}},
		Spec:       v1alpha1.DispatchSpec{TrainJob: reference, Attempt: 2, Priority: 8},
	}
	check.Diff(t, want, d, "Unplace()", cmpopts.EquateEmpty())
	place(v1alpha1.DispatchSpec{Cluster: "west", Attempt: 3})
}
