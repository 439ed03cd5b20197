// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

func podSet(role v1alpha1.PodSetRole, count int32, pairs ...string) v1alpha1.PodSet {
	p := v1alpha1.PodSet{Name: string(role), Role: role, Count: count, Requests: corev1.ResourceList{}}
	for i := 0; i < len(pairs); i += 2 {
		p.Requests[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return p
}

func TestNeeds(t *testing.T) {
	const gpu = "nvidia.com/gpu"
	tests := map[string]struct {
		reason  string
		podSets []v1alpha1.PodSet
		want    string
	}{
		"None":     {reason: "the demand is not known", want: "<unknown>"},
		"GPUs":     {reason: "of a job with GPUs they are told", podSets: []v1alpha1.PodSet{podSet("trainer", 4, gpu, "8", "cpu", "32")}, want: "4x8 nvidia.com/gpu"},
		"CPUs":     {reason: "of one without, its cpu", podSets: []v1alpha1.PodSet{podSet("trainer", 4, "cpu", "1500m")}, want: "4x1500m cpu"},
		"Nothing":  {reason: "a job may request nothing", podSets: []v1alpha1.PodSet{podSet("trainer", 4)}, want: "4 without requests"},
		"Devices":  {reason: "a pod may need several", podSets: []v1alpha1.PodSet{podSet("trainer", 2, gpu, "8", "rdma/hca", "1")}, want: "2x(8 nvidia.com/gpu, 1 rdma/hca)"},
		"Launcher": {reason: "a launcher without GPUs is not told beside nodes that have some", podSets: []v1alpha1.PodSet{podSet("launcher", 1, "cpu", "1"), podSet("trainer", 4, gpu, "8")}, want: "4x8 nvidia.com/gpu"},
		"Same":     {reason: "equal pods are counted together", podSets: []v1alpha1.PodSet{podSet("launcher", 1, gpu, "8"), podSet("trainer", 3, gpu, "8")}, want: "4x8 nvidia.com/gpu"},
		"Mixed":    {reason: "others are not", podSets: []v1alpha1.PodSet{podSet("a", 1, gpu, "8"), podSet("b", 2, gpu, "1")}, want: "1x8 nvidia.com/gpu + 2x1 nvidia.com/gpu"},
		"Initializer": {
			reason:  "initializers run before, and are told of a job that has nothing else",
			podSets: []v1alpha1.PodSet{podSet(v1alpha1.RoleDatasetInitializer, 1, "cpu", "4"), podSet("trainer", 2, "cpu", "8")}, want: "2x8 cpu",
		},
		"OnlyInitializer": {reason: "they are all there is", podSets: []v1alpha1.PodSet{podSet(v1alpha1.RoleModelInitializer, 1, "cpu", "4")}, want: "1x4 cpu"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, tc.want, Needs(tc.podSets), "Needs(): %s", tc.reason)
		})
	}
}

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// waiting returns the Dispatch of a job that waits.
func waiting(name string, priority int32, reason string) v1alpha1.Dispatch {
	d := v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, CreationTimestamp: metav1.NewTime(start)},
		Spec:       v1alpha1.DispatchSpec{TrainJob: v1alpha1.TrainJobReference{Name: name, UID: types.UID("uid-" + name)}, Priority: priority},
	}
	if reason != "" {
		d.Status.Conditions = []metav1.Condition{{Type: v1alpha1.DispatchPlaced, Status: metav1.ConditionFalse, Reason: reason}}
	}
	return d
}

// after returns when jobs were created, in minutes after start.
func after(minutes map[string]int) func(types.UID) (metav1.Time, bool) {
	return func(uid types.UID) (metav1.Time, bool) {
		m, known := minutes[string(uid[len("uid-"):])]
		return metav1.NewTime(start.Add(time.Duration(m) * time.Minute)), known
	}
}

func TestOrder(t *testing.T) {
	gone, placed, suspended := waiting("gone", 9, "NoFit"), waiting("placed", 9, "Placed"), waiting("suspended", 9, v1alpha1.ReasonSuspended)
	gone.DeletionTimestamp = &metav1.Time{Time: start}
	placed.Spec.Cluster = "east"
	theirs := waiting("theirs", 9, v1alpha1.ReasonManagedByMultiKueue)
	tests := map[string]struct {
		reason  string
		of      []v1alpha1.Dispatch
		created map[string]int
		want    []string
	}{
		"Priority": {reason: "the higher priority is first, however young", of: []v1alpha1.Dispatch{waiting("low", 1, "NoFit"), waiting("high", 2, "NoFit")}, created: map[string]int{"high": 5, "low": 1}, want: []string{"1 high", "2 low"}},
		"Age":      {reason: "then the older job, by its own creation and not that of its Dispatch", of: []v1alpha1.Dispatch{waiting("b", 0, ""), waiting("a", 0, "Queued")}, created: map[string]int{"a": 7, "b": 3}, want: []string{"1 b", "2 a"}},
		"UID":      {reason: "then the UID", of: []v1alpha1.Dispatch{waiting("b", 0, ""), waiting("a", 0, "")}, created: map[string]int{"a": 3, "b": 3}, want: []string{"1 a", "2 b"}},
		"Unknown":  {reason: "a job that may not be read is as old as its Dispatch", of: []v1alpha1.Dispatch{waiting("b", 0, ""), waiting("a", 0, "")}, created: map[string]int{"b": -1}, want: []string{"1 b", "2 a"}},
		"Others": {
			reason: "who waits for something else than room has no place, and is last",
			of:     []v1alpha1.Dispatch{waiting("lost", 9, v1alpha1.ReasonRuntimeNotFound), waiting("a", 0, "NoFit"), waiting("bare", 8, v1alpha1.ReasonNoPolicy)},
			want:   []string{"1 a", "0 lost", "0 bare"},
		},
		"Held": {
			reason: "who is held back by a copy or by Kueue, or has no attempt left, has no place either",
			of: []v1alpha1.Dispatch{
				waiting("copy", 9, v1alpha1.ReasonUnknownCopy), waiting("a", 0, "NoFit"), waiting("kueue", 8, v1alpha1.ReasonWaitingForWorkload),
				waiting("last", 7, v1alpha1.ReasonAttemptsExhausted),
			},
			want: []string{"1 a", "0 copy", "0 kueue", "0 last"},
		},
		"NotWaiting": {
			reason: "who goes, runs, is suspended or is dispatched by others does not wait",
			of:     []v1alpha1.Dispatch{gone, placed, suspended, theirs, waiting("a", 0, "Reserved")}, want: []string{"1 a"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, place := range NewWaitingList(Each(tc.of), after(tc.created)) {
				got = append(got, fmt.Sprintf("%d %s", place.Position, place.Name))
			}
			check.Diff(t, tc.want, got, tc.reason)
		})
	}
}

// TestReasonsInWaitingList checks which reasons keep a job out of the waiting list, and which give it a position there,
// with a reason of each kind.
func TestReasonsInWaitingList(t *testing.T) {
	const absent, last, positioned = "absent", "last", "positioned"
	for reason, want := range map[string]string{
		"":                                 positioned,
		"OfALaterManager":                  positioned,
		v1alpha1.ReasonNoWorkers:           positioned,
		v1alpha1.ReasonNoFit:               positioned,
		v1alpha1.ReasonQueued:              positioned,
		v1alpha1.ReasonPlaced:              last, // Until the status says why the job has lost its worker.
		v1alpha1.ReasonRuntimeNotFound:     last,
		v1alpha1.ReasonTooLarge:            last,
		v1alpha1.ReasonWaitingForWorkload:  last,
		v1alpha1.ReasonSuspended:           absent,
		v1alpha1.ReasonManagedByMultiKueue: absent,
	} {
		got := absent
		if list := NewWaitingList(Each([]v1alpha1.Dispatch{waiting("job", 0, reason)}), after(nil)); len(list) > 0 {
			if got = last; list[0].Position > 0 {
				got = positioned
			}
		}
		check.Equal(t, want, got, "a job that waits with %q", reason)
	}
}

func TestPlaceInWaitingList(t *testing.T) {
	other := waiting("other", 5, "NoFit")
	other.Namespace = "b"
	list := NewWaitingList(Each([]v1alpha1.Dispatch{waiting("mine", 3, "NoFit"), other, waiting("lost", 9, v1alpha1.ReasonRuntimeNotFound)}), after(nil))
	if place, length := list.Find("uid-mine"); place == nil || place.Position != 2 || length != 2 {
		t.Errorf("Find() = %v, %d; want the second of 2, with those of other namespaces and without those that have no place", place, length)
	}
	if place, _ := list.Find("uid-nobody"); place != nil {
		t.Errorf("Find() = %v, want none", place)
	}
	if mine := list.Of("a"); len(mine) != 2 || mine[0].Position != 2 {
		t.Errorf("Of() = %v, want two that keep their positions", mine)
	}
	for priority, want := range map[int32]int{6: 0, 5: 1, 4: 1, 3: 2, 0: 2} {
		check.Equal(t, want, list.Before(types.NamespacedName{Namespace: "a", Name: "new"}, priority),
			"Before(new, %d): equal ones are older", priority)
	}
	check.Equal(t, 1, list.Before(types.NamespacedName{Namespace: "a", Name: "mine"}, 3),
		"Before(mine): want 1: it does not come before itself")
}

func TestTable(t *testing.T) {
	lost := waiting("lost", 0, v1alpha1.ReasonRuntimeNotFound)
	list := NewWaitingList(Each([]v1alpha1.Dispatch{waiting("a", 1, "NoFit"), lost, waiting("b", 0, "")}), after(nil))
	options := TableOptions{Namespaces: true, Positions: true, Now: start.Add(time.Hour), Policy: func(p Place) string { return "of-" + p.Name }}
	cells := func(o TableOptions) (rows [][]any) {
		for _, row := range list.Table(o).Rows {
			rows = append(rows, row.Cells)
		}
		return rows
	}
	want := [][]any{
		{1, "a", "a", int32(1), "NoFit", "<unknown>", "60m", "of-a", ""},
		{2, "a", "b", int32(0), "<unknown>", "<unknown>", "60m", "of-b", ""},
		{"-", "a", "lost", int32(0), "RuntimeNotFound", "<unknown>", "60m", "of-lost", ""},
	}
	check.Diff(t, want, cells(options), "table")
	options = TableOptions{Now: start}
	if got := cells(options); got[0][0] != "<unknown>" || got[0][1] != "a" || got[2][0] != "-" {
		t.Errorf("%v: want no namespace, and no positions, which are not known", got)
	}
}
