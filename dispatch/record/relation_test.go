// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

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
