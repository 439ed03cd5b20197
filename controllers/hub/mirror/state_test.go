// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/test/check"
)

type jobOption func(*unstructured.Unstructured)

func testJob(uid string, options ...jobOption) *unstructured.Unstructured {
	job := trainjobs.New()
	job.SetNamespace("default")
	job.SetName("job")
	job.SetUID(types.UID(uid))
	for _, option := range options {
		option(job)
	}
	return job
}

func testCopy(origin, attempt string, options ...jobOption) *unstructured.Unstructured {
	return testJob("copy", append(options, func(job *unstructured.Unstructured) {
		job.SetLabels(map[string]string{v1alpha1.LabelHub: "hub", v1alpha1.LabelOriginUID: origin})
		job.SetAnnotations(map[string]string{v1alpha1.AnnotationAttempt: attempt})
	})...)
}

func withUID(uid types.UID) jobOption {
	return func(job *unstructured.Unstructured) { job.SetUID(uid) }
}

func ended(kind string) jobOption {
	return func(job *unstructured.Unstructured) {
		job.Object["status"] = map[string]any{"conditions": []any{
			map[string]any{"type": "Suspended", "status": "False", "reason": "Resumed"},
			map[string]any{"type": kind, "status": "True", "reason": "Because", "message": "of that"},
		}}
	}
}

type dispatchOption func(*v1alpha1.Dispatch)

func testDispatch(options ...dispatchOption) *v1alpha1.Dispatch {
	d := &v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job", UID: "dispatch"},
		Spec: v1alpha1.DispatchSpec{
			TrainJob: v1alpha1.TrainJobReference{Name: "job", UID: "origin"}, Cluster: "here", Attempt: 2,
		},
	}
	for _, option := range options {
		option(d)
	}
	return d
}

// withCopy says that the attempt has the copy of testCopy.
func withCopy(d *v1alpha1.Dispatch) {
	condition("Mirrored", "True", 2)(d)
	d.Status.CopyUID = "copy"
}

// recordedBefore says that an earlier attempt has had the copy of testCopy.
func recordedBefore(d *v1alpha1.Dispatch) {
	condition("Mirrored", "True", 1)(d)
	d.Status.CopyUID = "copy"
}

func condition(kind string, status metav1.ConditionStatus, attempt int32) dispatchOption {
	return func(d *v1alpha1.Dispatch) {
		d.Status.Attempt = attempt
		d.Status.Conditions = append(d.Status.Conditions, metav1.Condition{Type: kind, Status: status})
	}
}

func TestRemainsOf(t *testing.T) {
	otherHub := func(job *unstructured.Unstructured) {
		job.SetLabels(map[string]string{
			v1alpha1.LabelHub: "hub-2", v1alpha1.LabelOriginUID: "origin",
		})
	}
	unlabelled := func(job *unstructured.Unstructured) {
		job.SetLabels(map[string]string{v1alpha1.LabelOriginUID: "origin"})
	}
	ofOtherHub := testCopy("origin", "2")
	otherHub(ofOtherHub)
	bare := testCopy("origin", "2")
	unlabelled(bare)
	for name, test := range map[string]struct {
		reason   string
		dispatch *v1alpha1.Dispatch
		copy     *unstructured.Unstructured
		want     copies.Remains
	}{
		"None":       {reason: "nobody has the name", want: copies.Nothing},
		"OfAttempt":  {reason: "its marks say so, and no other is on record", copy: testCopy("origin", "2"), want: copies.Current},
		"OnRecord":   {reason: "its UID is on record", dispatch: testDispatch(withCopy), copy: testCopy("x", "9"), want: copies.Current},
		"Second":     {reason: "another UID is on record", dispatch: testDispatch(withCopy), copy: testCopy("origin", "2", withUID("y")), want: copies.Second},
		"Older":      {reason: "it is of another attempt", copy: testCopy("origin", "1"), want: copies.Older},
		"OlderKnown": {reason: "its UID is on record for another attempt", dispatch: testDispatch(recordedBefore), copy: testCopy("x", "1"), want: copies.Older},
		"Unlabelled": {reason: "a label that is missing says nothing", copy: bare, want: copies.Current},
		"Foreign":    {reason: "it is of another TrainJob", copy: testCopy("other", "2"), want: copies.Foreign},
		"OfTheUser":  {reason: "it has no marks", copy: testJob("x"), want: copies.Foreign},
		"OtherHub":   {reason: "a hub that was made from the same backup knows the same TrainJob", copy: ofOtherHub, want: copies.Foreign},
		"OtherHubOnRecord": {
			reason: "somebody has changed the label of our copy", dispatch: testDispatch(withCopy), copy: ofOtherHub, want: copies.Current,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := observation{hubID: "hub", dispatch: test.dispatch}
			if f.dispatch == nil {
				f.dispatch = testDispatch()
			}
			check.Equal(t, test.want, f.remainsOf(test.copy), "remainsOf(): %s", test.reason)
		})
	}
}
