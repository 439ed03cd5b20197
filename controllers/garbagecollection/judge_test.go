// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

func TestJudge(t *testing.T) {
	placed := func(cluster v1alpha1.ClusterName, attempt int32, finished bool) *v1alpha1.Dispatch {
		d := &v1alpha1.Dispatch{Spec: v1alpha1.DispatchSpec{
			TrainJob: v1alpha1.TrainJobReference{Name: "job", UID: "origin"}, Cluster: cluster, Attempt: attempt,
		}}
		if finished {
			d.Status.Conditions = []metav1.Condition{{Type: v1alpha1.DispatchFinished, Status: metav1.ConditionTrue}}
		}
		return d
	}
	for name, test := range map[string]struct {
		reason   string
		origin   string
		attempt  string
		deleting bool
		dispatch *v1alpha1.Dispatch
		want     verdict
	}{
		"Current":      {reason: "it runs", origin: "origin", attempt: "2", dispatch: placed("here", 2, false), want: needed},
		"Finished":     {reason: "it waits for its retention", origin: "origin", attempt: "2", dispatch: placed("here", 2, true), want: ended},
		"OldAttempt":   {reason: "the hub has moved on", origin: "origin", attempt: "1", dispatch: placed("here", 2, false), want: outdated},
		"OldAttemptOf": {reason: "a finished job has one copy", origin: "origin", attempt: "1", dispatch: placed("here", 2, true), want: outdated},
		"MovedAway":    {reason: "it runs elsewhere", origin: "origin", attempt: "1", dispatch: placed("elsewhere", 2, false), want: outdated},
		"Renamed":      {reason: "the cluster is registered under another name now, and the job runs", origin: "origin", attempt: "2", dispatch: placed("elsewhere", 2, false), want: unknown},
		"Waiting":      {reason: "this attempt has ended, the next has no worker yet", origin: "origin", attempt: "2", dispatch: placed("", 2, false), want: outdated},
		"NoRecord":     {reason: "after a restore absence proves nothing", origin: "origin", attempt: "2", want: unknown},
		"OtherOrigin":  {reason: "a job of this name that the hub does not know", origin: "other", attempt: "2", dispatch: placed("here", 2, false), want: unknown},
		"Later":        {reason: "the hub was restored from before this attempt", origin: "origin", attempt: "3", dispatch: placed("here", 2, false), want: unknown},
		"NoAttempt":    {reason: "somebody took the annotation off", origin: "origin", attempt: "", dispatch: placed("here", 2, false), want: unknown},
		"Deleting":     {reason: "it is going already", origin: "origin", attempt: "1", deleting: true, dispatch: placed("here", 2, false), want: needed},
	} {
		t.Run(name, func(t *testing.T) {
			copy := trainjobs.New()
			copy.SetLabels(map[string]string{v1alpha1.LabelOriginUID: test.origin})
			copy.SetAnnotations(map[string]string{v1alpha1.AnnotationAttempt: test.attempt})
			if test.deleting {
				now := metav1.Now()
				copy.SetDeletionTimestamp(&now)
			}
			if got := judge("here", copy, test.dispatch); got != test.want {
				t.Errorf("judge() = %d, want %d: %s", got, test.want, test.reason)
			}
		})
	}
}
