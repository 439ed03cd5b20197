// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// What a job would lose follows its Dispatch: it has lost nothing after a checkpoint.
func TestVictimsLoseWhatTheyHaveNotSaved(t *testing.T) {
	at := func(minutes int64) *metav1.Time { return ptr.To(metav1.Unix(1e9+60*minutes, 0)) }
	f := newFleet(Options{Clock: testclock.NewFakeClock(time.Unix(2e9, 0))}, newAssignments())
	d := &v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", CreationTimestamp: *at(0)},
		Spec: v1alpha1.DispatchSpec{
			TrainJob: v1alpha1.TrainJobReference{Name: "job", UID: "uid"}, Cluster: "east", Attempt: 2,
		},
	}
	for _, step := range []struct {
		what   string
		change func(*v1alpha1.DispatchStatus)
		want   *metav1.Time
	}{
		{"it is placed", func(*v1alpha1.DispatchStatus) {}, at(0)},
		{"its pods run", func(s *v1alpha1.DispatchStatus) { s.Attempt, s.FirstRunningTime = 2, at(10) }, at(10)},
		{"it has saved", func(s *v1alpha1.DispatchStatus) {
			s.LastCheckpoint = &v1alpha1.SavedCheckpoint{Name: "1200", Time: *at(70)}
		}, at(70)},
	} {
		step.change(&d.Status)
		f.follow(d.DeepCopy())
		victims := (&occupancy{jobs: f.jobs.on("east")}).Victims()
		if len(victims) != 1 {
			t.Fatalf("%s: the victims are %+v", step.what, victims)
		}
		check.Equal(t, step.want.Unix(), victims[0].Since.Unix(), "%s: it loses what it has done since", step.what)
	}
}
