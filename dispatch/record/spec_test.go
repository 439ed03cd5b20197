// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

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

func TestRelationOf(t *testing.T) {
	// dispatch makes the record of attempt 2 of the job "origin". By its status, attempt copied had the copy "recorded".
	dispatch := func(copied int32) *v1alpha1.Dispatch {
		d := &v1alpha1.Dispatch{Spec: v1alpha1.DispatchSpec{TrainJob: v1alpha1.TrainJobReference{UID: "origin"}, Attempt: 2}}
		if copied > 0 {
			d.Status.Attempt, d.Status.CopyUID = copied, "recorded"
			d.Status.Conditions = []metav1.Condition{{Type: v1alpha1.DispatchMirrored, Status: metav1.ConditionTrue}}
		}
		return d
	}
	for name, test := range map[string]struct {
		reason               string
		dispatch             *v1alpha1.Dispatch
		uid                  types.UID
		hub, origin, attempt string
		known                types.UID
		want                 Relation
	}{
		"ByItsMarks":        {"no other is on record", dispatch(0), "x", "hub", "origin", "2", "", Current},
		"WithoutHub":        {"a label that is missing says nothing", dispatch(0), "x", "", "origin", "2", "", Current},
		"OnRecord":          {"whatever is written on it", dispatch(2), "recorded", "hub", "other", "9", "", Current},
		"OnRecordAnyHub":    {"even with the label of another hub", dispatch(2), "recorded", "hub-2", "origin", "2", "", Current},
		"Known":             {"the record lags behind", dispatch(0), "x", "hub", "other", "", "x", Current},
		"Second":            {"another is on record", dispatch(2), "x", "hub", "origin", "2", "", Second},
		"SecondKnown":       {"another is known", dispatch(0), "x", "hub", "origin", "2", "y", Second},
		"RecordedBefore":    {"the record is about an earlier attempt", dispatch(1), "x", "hub", "origin", "2", "", Current},
		"Older":             {"its attempt is over", dispatch(2), "x", "hub", "origin", "1", "", Older},
		"OlderEdited":       {"its UID is on record for an earlier attempt", dispatch(1), "recorded", "hub", "other", "1", "", Older},
		"Later":             {"the hub was restored from before it", dispatch(2), "x", "hub", "origin", "3", "", Later},
		"NoAttempt":         {"somebody took it off", dispatch(2), "x", "hub", "origin", "", "", Unmarked},
		"AttemptZero":       {"attempts begin at 1", dispatch(2), "x", "hub", "origin", "0", "", Unmarked},
		"AttemptTooHigh":    {"no attempt has this number", dispatch(2), "x", "hub", "origin", "2147483648", "", Unmarked},
		"OtherJob":          {"it is of another TrainJob", dispatch(2), "x", "hub", "other", "2", "", Foreign},
		"WithoutMarks":      {"a user made it", dispatch(0), "x", "", "", "", "", Foreign},
		"OfAnotherHub":      {"both hubs are from one backup", dispatch(0), "x", "hub-2", "origin", "2", "", Foreign},
		"NoDispatch":        {"there is no record", nil, "x", "hub", "origin", "2", "", Foreign},
		"NoUIDs":            {"an empty UID names no copy", dispatch(0), "", "hub", "other", "2", "", Foreign},
		"OtherJobNoRecord":  {"nothing says that it is ours", dispatch(0), "x", "hub", "other", "2", "y", Foreign},
		"OlderBesideRecord": {"the record is about another copy", dispatch(2), "x", "", "origin", "1", "", Older},
	} {
		t.Run(name, func(t *testing.T) {
			copy := &metav1.ObjectMeta{UID: test.uid, Labels: map[string]string{}, Annotations: map[string]string{}}
			for key, value := range map[string]string{v1alpha1.LabelHub: test.hub, v1alpha1.LabelOriginUID: test.origin} {
				if value != "" {
					copy.Labels[key] = value
				}
			}
			if test.attempt != "" {
				copy.Annotations[v1alpha1.AnnotationAttempt] = test.attempt
			}
			check.Equal(t, test.want, RelationOf(test.dispatch, copy, Known{HubID: "hub", CopyUID: test.known}),
				"RelationOf(): %s", test.reason)
		})
	}
}

// TestEndings checks that each outcome has a row, and that the evictions which the API allows have an evictor.
func TestEndings(t *testing.T) {
	var outcomes, evictions []string
	for _, ending := range Endings() {
		outcomes = append(outcomes, string(ending.Outcome))
		if ending.Evictor != "" {
			evictions = append(evictions, string(ending.Outcome))
		}
	}
	allowed := enumOf(t, "dispatch_spec.go", "EvictionReason")
	slices.Sort(allowed)
	slices.Sort(evictions)
	check.Diff(t, allowed, evictions, "reasons of evictions of the API and rows with an evictor differ (-API +rows)")
	check.Diff(t, enumOf(t, "dispatch_status.go", "Outcome"), outcomes, "outcomes of the API and rows differ (-API +rows)")
}

// enumOf returns the values of a type of the API.
func enumOf(t *testing.T, file, name string) []string {
	t.Helper()
	text, err := os.ReadFile("../../api/v1alpha1/" + file)
	check.Must(t, err)
	enum := regexp.MustCompile(`:Enum=(\S+)\ntype ` + name + ` string`).FindSubmatch(text)
	if enum == nil {
		t.Fatalf("%s has no enum of %s", file, name)
	}
	return strings.Split(string(enum[1]), ";")
}
