// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/fleet"
	"github.com/trainyard/trainyard/test/check"
)

func paused(message string) metav1.Condition {
	return metav1.Condition{
		Type: v1alpha1.WorkerClusterFailoverPaused, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonManyWorkersLost, Message: message,
	}
}

func TestStatesOfAWorker(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	seen := metav1.NewTime(now.Add(-7 * time.Minute))
	tests := map[string]struct {
		reason string
		edit   func(*v1alpha1.WorkerCluster)
		want   string
		notes  []string
	}{
		"Ready":           {reason: "all is well", edit: func(*v1alpha1.WorkerCluster) {}, want: "True"},
		"Cordoned":        {reason: "no new jobs", edit: func(w *v1alpha1.WorkerCluster) { w.Spec.Unschedulable = true }, want: "True,Cordoned"},
		"Draining":        {reason: "the jobs leave", edit: func(w *v1alpha1.WorkerCluster) { w.Spec.Drain = true }, want: "True,Draining"},
		"CordonedDrained": {reason: "a drain is a cordon too", edit: func(w *v1alpha1.WorkerCluster) { w.Spec.Drain, w.Spec.Unschedulable = true, true }, want: "True,Draining"},
		"Paused": {
			reason: "why nothing is moved off a lost worker, and since when it is lost",
			edit: func(w *v1alpha1.WorkerCluster) {
				w.Status.Conditions = append(ready(metav1.ConditionFalse, "Unreachable", ""), paused("3 of 4 workers were lost"))
				w.Status.LastSeenTime = &seen
			},
			want: "Unreachable,FailoverPaused (seen 7m ago)", notes: []string{`the jobs of worker "w" are not moved: 3 of 4 workers were lost`},
		},
		"Forgotten": {
			reason: "the hub does not wait for this cluster",
			edit: func(w *v1alpha1.WorkerCluster) {
				w.Status.ClusterID, w.Annotations = "id", map[string]string{v1alpha1.AnnotationForget: "id"}
			},
			want: "True,Forgotten",
		},
		"OtherForgotten": {
			reason: "the cluster that the name led to before was forgotten",
			edit: func(w *v1alpha1.WorkerCluster) {
				w.Status.ClusterID, w.Annotations = "new", map[string]string{v1alpha1.AnnotationForget: "old"}
			},
			want: "True",
		},
		"UnknownCopies": {
			reason: "somebody has to decide",
			edit:   func(w *v1alpha1.WorkerCluster) { w.Status.UnknownCopies = make([]v1alpha1.UnknownCopy, 2) },
			want:   "True", notes: []string{`worker "w" has copies that the hub has no record of: kubectl trainyard adopt w prints 2 of them`},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := worker("w")
			tc.edit(&w)
			check.Diff(t, tc.want, fleet.Ready(&w, now), fmt.Sprintf("%s: Ready()", tc.reason))
			check.Diff(t, tc.notes, fleet.Notes([]v1alpha1.WorkerCluster{w}), fmt.Sprintf("%s: Notes()", tc.reason))
		})
	}
}
