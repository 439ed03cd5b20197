// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package copies_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/copies"
	"github.com/trainyard/trainyard/test/check"
)

// worker returns a worker with unknown copies of these names in namespace n.
func worker(names ...string) *v1alpha1.WorkerCluster {
	w := &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: "east"}}
	for _, name := range names {
		w.Status.UnknownCopies = append(w.Status.UnknownCopies, v1alpha1.UnknownCopy{Namespace: "n", Name: name, UID: types.UID(name)})
	}
	return w
}

// full has the maximum number of copies of a status.
func full() *v1alpha1.WorkerCluster {
	var names []string
	for i := range 64 {
		names = append(names, fmt.Sprintf("job-%02d", i))
	}
	return worker(names...)
}

func TestFind(t *testing.T) {
	tests := map[string]struct {
		reason string
		worker *v1alpha1.WorkerCluster
		name   string
		want   string
	}{
		"Found":   {reason: "it is there", worker: worker("llama", "bert"), name: "bert"},
		"Nearest": {reason: "the nearest is named", worker: worker("llama"), name: "lama", want: `no copy "n/lama" that the hub has no record of (did you mean "n/llama"?)`},
		"None":    {reason: "there are none", worker: worker(), name: "bert", want: `worker "east" has no copy "n/bert"`},
		"Cut":     {reason: "it may be one that is not listed", worker: full(), name: "zebra", want: "there may be more than the 64 that are listed"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			copy, err := copies.Find(tc.worker, types.NamespacedName{Namespace: "n", Name: tc.name})
			switch {
			case tc.want == "" && (err != nil || copy.Name != tc.name):
				t.Errorf("%s: Find() = %v, %v", tc.reason, copy, err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("%s: Find() = %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

func TestIsSettled(t *testing.T) {
	copyOf := func(name string, uid types.UID) v1alpha1.UnknownCopy {
		return v1alpha1.UnknownCopy{Namespace: "n", Name: name, UID: uid}
	}
	tests := map[string]struct {
		reason string
		worker *v1alpha1.WorkerCluster
		copy   v1alpha1.UnknownCopy
		want   bool
	}{
		"Listed":  {reason: "nothing has been done yet", worker: worker("a", "b"), copy: copyOf("a", "a")},
		"Gone":    {reason: "it is not listed any more", worker: worker("b"), copy: copyOf("a", "a"), want: true},
		"Another": {reason: "another copy of its name is not it", worker: worker("a"), copy: copyOf("a", "older"), want: true},
		"Pushed":  {reason: "others that come before it have taken the room in the list", worker: full(), copy: copyOf("zebra", "z")},
		"GoneCut": {reason: "it would be in the list", worker: full(), copy: copyOf("a", "a"), want: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, tc.want, copies.IsSettled(tc.worker, tc.copy), "%s: IsSettled()", tc.reason)
		})
	}
}

func TestOutcome(t *testing.T) {
	dispatch := func(cluster v1alpha1.ClusterName) *v1alpha1.Dispatch {
		return &v1alpha1.Dispatch{Spec: v1alpha1.DispatchSpec{Cluster: cluster, Attempt: 3}}
	}
	tests := map[string]struct {
		reason   string
		decision v1alpha1.CopyDecision
		dispatch *v1alpha1.Dispatch
		want     string
		wantErr  string
	}{
		"Adopted":    {reason: "the job goes on there", decision: v1alpha1.DecisionAdopt, dispatch: dispatch("east"), want: "trainjob n/a adopted: it is on worker east, attempt 3"},
		"NotAdopted": {reason: "the job was placed elsewhere meanwhile", decision: v1alpha1.DecisionAdopt, dispatch: dispatch("west"), wantErr: `was not adopted: its job is on worker "west"`},
		"Waits":      {reason: "the job waits still", decision: v1alpha1.DecisionAdopt, dispatch: dispatch(""), wantErr: "was not adopted: its job is waiting"},
		"JobGone":    {reason: "the job was deleted meanwhile", decision: v1alpha1.DecisionAdopt, wantErr: "there is no Dispatch of its name"},
		"Released":   {reason: "it is the worker's", decision: v1alpha1.DecisionRelease, want: "trainjob n/a released: it is one of worker east's own now, and runs on"},
		"Deleted":    {reason: "it is gone", decision: v1alpha1.DecisionDelete, want: "trainjob n/a deleted on worker east"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := copies.Outcome(worker(), v1alpha1.UnknownCopy{Namespace: "n", Name: "a"}, tc.decision, tc.dispatch)
			if got != tc.want || (err != nil) != (tc.wantErr != "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("%s: Outcome() = %q, %v", tc.reason, got, err)
			}
		})
	}
}
