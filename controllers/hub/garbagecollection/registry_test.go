// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// To which jobs a copy may belong depends on whether it is certain that the copy is unknown.
func TestRegistryOf(t *testing.T) {
	key := types.NamespacedName{Namespace: "n", Name: "job"}
	for name, test := range map[string]struct {
		reason string
		copies map[v1alpha1.ClusterName]unknownCopy
		origin types.UID
		want   v1alpha1.ClusterName
	}{
		"Nothing":     {reason: "nobody has a copy", origin: "a"},
		"Uncertain":   {reason: "it is a copy of this very job", copies: map[v1alpha1.ClusterName]unknownCopy{"w": {origin: "a"}}, origin: "a", want: "w"},
		"OtherOrigin": {reason: "the caches may lag; a new job must not wait for that", copies: map[v1alpha1.ClusterName]unknownCopy{"w": {origin: "a"}}, origin: "b"},
		"Certain":     {reason: "it may be the job from before a restore", copies: map[v1alpha1.ClusterName]unknownCopy{"w": {origin: "a", certain: true, found: true}}, origin: "b", want: "w"},
		"Late":        {reason: "nobody has asked for it", copies: map[v1alpha1.ClusterName]unknownCopy{"w": {origin: "a", certain: true}}, origin: "b"},
		"KnownLate": {
			reason: "an earlier process has seen that it came late", origin: "b",
			copies: map[v1alpha1.ClusterName]unknownCopy{"w": {origin: "a", certain: true, found: true, why: reason{name: v1alpha1.ReasonAppearedLate}}},
		},
		"Several": {reason: "the answer is always the same", copies: map[v1alpha1.ClusterName]unknownCopy{"w": {origin: "a"}, "v": {origin: "a"}, "x": {origin: "a"}}, origin: "a", want: "v"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry()
			for worker, s := range test.copies {
				r.put(worker, key, s)
			}
			if got, ok := r.of(key, test.origin); got != test.want || ok != (test.want != "") {
				t.Errorf("of() = %q, %t, want %q: %s", got, ok, test.want, test.reason)
			}
			for worker := range test.copies {
				r.forget(worker)
			}
			if got, ok := r.of(key, test.origin); ok || len(r.copies) != 0 || len(r.byWorker) != 0 {
				t.Errorf("of() = %q after all workers have left, and something is kept", got)
			}
		})
	}
}

// A sweep keeps what is known of a copy, but not if another copy has that name now.
func TestRegistrySweep(t *testing.T) {
	key := types.NamespacedName{Namespace: "n", Name: "job"}
	r := newRegistry()
	r.sweep("w", map[types.NamespacedName]unknownCopy{key: {uid: "1"}})
	r.put("w", key, unknownCopy{uid: "1", certain: true})
	r.sweep("w", map[types.NamespacedName]unknownCopy{key: {uid: "1"}})
	if s, _ := r.get("w", key); !s.certain {
		t.Error("a sweep has made a certain copy uncertain again")
	}
	r.sweep("w", map[types.NamespacedName]unknownCopy{key: {uid: "2"}})
	if s, _ := r.get("w", key); s.certain || s.uid != "2" {
		t.Errorf("another copy of the name is taken for the one before: %+v", s)
	}
	r.sweep("w", nil)
	if _, known := r.get("w", key); !known {
		t.Error("a copy that the worker does not name any more was let go before it was looked whether its pods have gone")
	}
}

// The status lists the first copies by name. All its other fields stay.
func TestShowUnknown(t *testing.T) {
	r := newRegistry()
	for i := range listLimit + 6 {
		r.put("w", types.NamespacedName{Namespace: "n", Name: fmt.Sprintf("job-%02d", listLimit+5-i)}, unknownCopy{uid: "u", certain: true})
	}
	copies, _ := r.certain("w")
	if len(copies) != listLimit+6 {
		t.Fatalf("%d copies are certain, want %d", len(copies), listLimit+6)
	}
	worker := &v1alpha1.WorkerCluster{}
	worker.Status.GPUs = "1/2"
	worker.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.WorkerClusterReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConnected,
	}}
	before := worker.Status.DeepCopy()
	showUnknown(worker, copies, time.Unix(100, 0))
	listed := worker.Status.UnknownCopies
	if len(listed) != listLimit || listed[0].Name != "job-00" || listed[listLimit-1].Name != fmt.Sprintf("job-%02d", listLimit-1) {
		t.Errorf("%d copies are listed, from %q", len(listed), listed[0].Name)
	}
	check.Equal(t, 2, len(worker.Status.Conditions), "conditions: %v", worker.Status.Conditions)
	showUnknown(worker, nil, time.Unix(200, 0))
	check.Diff(t, *before, worker.Status, "status after all have gone")
}
