// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package drain_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/drain"
	"github.com/trainyard/trainyard/test/check"
)

type edit func(*v1alpha1.Dispatch)

// dispatch returns the Dispatch of a job that runs on worker east.
func dispatch(name string, edits ...edit) v1alpha1.Dispatch {
	d := v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name},
		Spec:       v1alpha1.DispatchSpec{TrainJob: v1alpha1.TrainJobReference{Name: name, UID: types.UID(name)}, Cluster: "east", Attempt: 1},
		Status:     v1alpha1.DispatchStatus{Attempt: 1},
	}
	for _, e := range edits {
		e(&d)
	}
	return d
}

func with(kind string, status metav1.ConditionStatus, reason, message string) edit {
	return func(d *v1alpha1.Dispatch) {
		d.Status.Conditions = append(d.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
	}
}

func on(worker v1alpha1.ClusterName) edit {
	return func(d *v1alpha1.Dispatch) { d.Spec.Cluster, d.Spec.Attempt = worker, d.Spec.Attempt+1 }
}

func evicted(d *v1alpha1.Dispatch) {
	d.Spec.Eviction = &v1alpha1.Eviction{Reason: v1alpha1.EvictionDrained, Message: "worker east\nis drained"}
}

func deleted(d *v1alpha1.Dispatch) { d.DeletionTimestamp = &metav1.Time{} }

func lost(reason string) edit {
	return with(v1alpha1.DispatchWorkerLost, metav1.ConditionTrue, reason, "since noon")
}

var (
	finished = with(v1alpha1.DispatchFinished, metav1.ConditionTrue, v1alpha1.ReasonComplete, "")
	stopped  = with(v1alpha1.DispatchMirrored, metav1.ConditionFalse, string(v1alpha1.OutcomeDrained), "")
	noRoom   = with(v1alpha1.DispatchEvicting, metav1.ConditionFalse, v1alpha1.ReasonNoRoomElsewhere, "west: lacks 8 nvidia.com/gpu")
)

func TestFates(t *testing.T) {
	tests := map[string]struct {
		reason      string
		edits       []edit
		want        string
		stay, leave int
	}{
		"Undecided":       {reason: "others go first", want: "waits for its turn", leave: 1},
		"Stays":           {reason: "it fits nowhere else", edits: []edit{noRoom}, want: "stays: west: lacks 8 nvidia.com/gpu", stay: 1},
		"Evicting":        {reason: "it is being stopped", edits: []edit{evicted}, want: "evicting: worker east is drained", leave: 1},
		"RoomCame":        {reason: "there was no room, and now there is", edits: []edit{noRoom, evicted}, want: "evicting: worker east is drained", leave: 1},
		"Stopped":         {reason: "it is placed in a moment", edits: []edit{evicted, stopped}, want: "stopped", leave: 1},
		"Waiting":         {reason: "it has left, but has no worker yet", edits: []edit{on("")}, want: "left, and waits for a worker"},
		"Moved":           {reason: "it is elsewhere", edits: []edit{on("west")}, want: "moved to west"},
		"Ended":           {reason: "it came to its end", edits: []edit{finished}, want: "ended"},
		"Deleting":        {reason: "its copy goes first", edits: []edit{deleted}, want: "is being deleted", leave: 1},
		"Lost":            {reason: "nobody can stop it", edits: []edit{evicted, lost(v1alpha1.ReasonHold)}, want: "stays, as the worker does not answer (Hold): since noon", stay: 1},
		"LostDeletion":    {reason: "nobody can delete it", edits: []edit{deleted, lost(v1alpha1.ReasonDeletionPending)}, want: "stays, as the worker does not answer (DeletionPending): since noon", stay: 1},
		"Fencing":         {reason: "its agent stops it", edits: []edit{lost(v1alpha1.ReasonFencing)}, want: "leaves when the worker, which does not answer, must have stopped it: since noon", leave: 1},
		"LostAndFinished": {reason: "an end is an end", edits: []edit{finished, lost(v1alpha1.ReasonHold)}, want: "ended"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			progress := drain.NewProgress("east")
			progress.Look([]v1alpha1.Dispatch{dispatch("a", with(v1alpha1.DispatchPlaced, metav1.ConditionTrue, "", ""))})
			want := []string{"trainjob n/a " + tc.want}
			if tc.want == "waits for its turn" {
				want = []string{} // Nothing has changed.
			}
			check.Diff(t, want, progress.Look([]v1alpha1.Dispatch{dispatch("a", tc.edits...)}),
				fmt.Sprintf("%s: lines", tc.reason))
			if stay, leave := progress.Counts(); stay != tc.stay || leave != tc.leave {
				t.Errorf("%s: %d stay and %d leave, want %d and %d", tc.reason, stay, leave, tc.stay, tc.leave)
			}
		})
	}
}

// TestHolders checks that a job on its way from another drained worker has a line while jobs of the worker wait for it.
func TestHolders(t *testing.T) {
	drained := func(d *v1alpha1.Dispatch) {
		d.Status.History = append(d.Status.History, v1alpha1.Attempt{Cluster: "north", Outcome: v1alpha1.OutcomeDrained})
	}
	held := "trainjob n/x holds up the others, as many as their policy's maxConcurrentMoves are on their way: it "
	nowhere := with(v1alpha1.DispatchPlaced, metav1.ConditionFalse, v1alpha1.ReasonPinMismatch, "")
	progress := drain.NewProgress("east")
	for i, look := range []struct {
		dispatches []v1alpha1.Dispatch
		want       []string
	}{
		{
			dispatches: []v1alpha1.Dispatch{dispatch("a"), dispatch("x", on("north"), evicted)},
			want:       []string{"trainjob n/a waits for its turn", held + "is being stopped on north"},
		},
		{
			dispatches: []v1alpha1.Dispatch{dispatch("a"), dispatch("x", on(""), drained, nowhere)},
			want:       []string{held + "has no worker yet: PinMismatch"},
		},
		{dispatches: []v1alpha1.Dispatch{dispatch("a"), dispatch("x", on("west"), drained)}, want: []string{held + "has no copy on west yet"}},
		{dispatches: []v1alpha1.Dispatch{dispatch("a"), dispatch("x", on("west"))}, want: []string{}},
		{dispatches: []v1alpha1.Dispatch{dispatch("a", evicted), dispatch("y", on(""), drained)}, want: []string{"trainjob n/a evicting: worker east is drained"}},
	} {
		check.Diff(t, look.want, progress.Look(look.dispatches), fmt.Sprintf("look %d", i))
	}
	if stay, leave := progress.Counts(); stay != 0 || leave != 1 {
		t.Errorf("%d jobs stay and %d leave, want one to leave", stay, leave)
	}
}

// TestProgress checks that only changes are reported, only of the worker's jobs.
func TestProgress(t *testing.T) {
	progress := drain.NewProgress("east")
	looks := []struct {
		dispatches []v1alpha1.Dispatch
		want       []string
	}{
		{
			dispatches: []v1alpha1.Dispatch{dispatch("c"), dispatch("a", evicted), dispatch("b", noRoom), dispatch("other", on("west")), dispatch("waits", on("")), dispatch("done", finished)},
			want:       []string{"trainjob n/a evicting: worker east is drained", "trainjob n/b stays: west: lacks 8 nvidia.com/gpu", "trainjob n/c waits for its turn"},
		},
		{
			dispatches: []v1alpha1.Dispatch{dispatch("a", on("west")), dispatch("b", noRoom), dispatch("c"), dispatch("other", on("north"))},
			want:       []string{"trainjob n/a moved to west"},
		},
		{dispatches: []v1alpha1.Dispatch{dispatch("a", on("west")), dispatch("b", noRoom)}, want: []string{"trainjob n/c was deleted"}},
		{dispatches: []v1alpha1.Dispatch{dispatch("a", on("west")), dispatch("b", evicted)}, want: []string{"trainjob n/b evicting: worker east is drained"}},
		{dispatches: []v1alpha1.Dispatch{dispatch("a", on("west")), dispatch("b", on("north"))}, want: []string{"trainjob n/b moved to north"}},
		{dispatches: []v1alpha1.Dispatch{dispatch("a", on("west")), dispatch("b", on("north"))}, want: []string{}},
	}
	for i, look := range looks {
		check.Diff(t, look.want, progress.Look(look.dispatches), fmt.Sprintf("look %d", i))
	}
	if stay, leave := progress.Counts(); stay+leave != 0 {
		t.Errorf("%d jobs stay and %d leave at the end", stay, leave)
	}
}
