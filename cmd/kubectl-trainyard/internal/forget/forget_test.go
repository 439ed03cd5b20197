// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package forget_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/forget"
	"github.com/trainyard/trainyard/test/check"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func worker(status metav1.ConditionStatus, reason string) *v1alpha1.WorkerCluster {
	return &v1alpha1.WorkerCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "east"},
		Status: v1alpha1.WorkerClusterStatus{ClusterID: "id", Conditions: []metav1.Condition{
			{Type: v1alpha1.WorkerClusterReady, Status: status, Reason: reason, Message: "i/o timeout"},
		}},
	}
}

func TestRefusal(t *testing.T) {
	may, ask, never := [2]bool{}, [2]bool{true, false}, [2]bool{true, true}
	tests := map[string]struct {
		reason string
		worker *v1alpha1.WorkerCluster
		// want: refused, and final.
		want [2]bool
	}{
		"Unreachable":        {"what it is for", worker(metav1.ConditionFalse, v1alpha1.ReasonUnreachable), may},
		"CredentialsRefused": {"nobody can tell whether its jobs run", worker(metav1.ConditionFalse, v1alpha1.ReasonCredentialsInvalid), may},
		"IdentityChanged":    {"another cluster has taken its place", worker(metav1.ConditionFalse, v1alpha1.ReasonIdentityChanged), may},
		"Ready":              {"its jobs can be moved in order", worker(metav1.ConditionTrue, v1alpha1.ReasonConnected), never},
		"NoTrainJobs":        {"with the API its jobs have gone", worker(metav1.ConditionFalse, v1alpha1.ReasonTrainJobAPIMissing), ask},
		"NoReport":           {"its jobs are looked after", worker(metav1.ConditionFalse, v1alpha1.ReasonCapacityReportStale), never},
		"Connecting":         {"in a second more is known", worker(metav1.ConditionFalse, v1alpha1.ReasonConnecting), ask},
		"NotSeen":            {"nothing is known", &v1alpha1.WorkerCluster{}, ask},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			refusal := forget.RefusalOf(tc.worker)
			check.Equal(t, tc.want, [2]bool{refusal.Why != "", refusal.Final},
				"%s: RefusalOf() = %+v", tc.reason, refusal)
		})
	}
}

func TestDescribe(t *testing.T) {
	dispatch := func(name string, edit func(*v1alpha1.Dispatch)) v1alpha1.Dispatch {
		d := v1alpha1.Dispatch{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name},
			Spec:       v1alpha1.DispatchSpec{Cluster: "east", ClusterID: "id", Attempt: 2, Failover: v1alpha1.FailoverFenced},
			Status:     v1alpha1.DispatchStatus{Phase: v1alpha1.PhaseWorkerLost},
		}
		edit(&d)
		return d
	}
	finished := []metav1.Condition{{Type: v1alpha1.DispatchFinished, Status: metav1.ConditionTrue}}
	lost := worker(metav1.ConditionFalse, v1alpha1.ReasonUnreachable)
	lost.Status.LastSeenTime = &metav1.Time{Time: now.Add(-time.Hour)}
	tombstone := func(cluster types.UID) v1alpha1.Tombstone {
		return v1alpha1.Tombstone{Spec: v1alpha1.TombstoneSpec{Cluster: "east", ClusterID: cluster}}
	}
	tests := map[string]struct {
		reason     string
		dispatches []v1alpha1.Dispatch
		tombstones []v1alpha1.Tombstone
		want       string
	}{
		"Jobs": {
			reason: "the jobs of this cluster that are live, and those that are being deleted",
			dispatches: []v1alpha1.Dispatch{
				dispatch("b", func(*v1alpha1.Dispatch) {}),
				dispatch("a", func(d *v1alpha1.Dispatch) { d.Spec.Failover = "" }),
				dispatch("gone", func(d *v1alpha1.Dispatch) { d.DeletionTimestamp = &metav1.Time{} }),
				dispatch("elsewhere", func(d *v1alpha1.Dispatch) { d.Spec.Cluster = "west" }),
				dispatch("before", func(d *v1alpha1.Dispatch) { d.Spec.ClusterID = "old" }),
				dispatch("done", func(d *v1alpha1.Dispatch) { d.Status.Conditions = finished }),
			},
			tombstones: []v1alpha1.Tombstone{tombstone("id"), tombstone("old"), tombstone("id")},
			want: `WorkerCluster east: Unreachable, i/o timeout; last seen 60m ago. Its cluster has the ID id.

Forgetting it tells the hub that nothing runs on this cluster any more, and that the hub need not wait for it. Nobody checks that.

Its live jobs are started elsewhere at once, whatever their failover is:
NAMESPACE   TRAINJOB   PHASE        ATTEMPT   FAILOVER
n           a          WorkerLost   2         Hold
n           b          WorkerLost   2         Fenced

Deleted jobs no longer wait for it:
NAMESPACE   TRAINJOB   PHASE        ATTEMPT   FAILOVER
n           gone       WorkerLost   2         Fenced

It may still have copies of deleted jobs: 2 Tombstones name them, and stay.

THE RISK: `,
		},
		"NoJobs": {
			reason: "it is said that there are none",
			want: `WorkerCluster east: Unreachable, i/o timeout; last seen 60m ago. Its cluster has the ID id.

Forgetting it tells the hub that nothing runs on this cluster any more, and that the hub need not wait for it. Nobody checks that.

Its live jobs are started elsewhere at once, whatever their failover is: none.

Deleted jobs no longer wait for it: none.

THE RISK: `,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			c := forget.Consequences{Worker: lost, Dispatches: tc.dispatches, Tombstones: tc.tombstones, Now: now}
			check.Must(t, forget.Describe(&out, c))
			text, risk, _ := strings.Cut(out.String(), "THE RISK: ")
			check.Diff(t, tc.want, text+"THE RISK: ", tc.reason)
			for _, want := range []string{"jobs go on there", "run again elsewhere", "If it returns", "kubectl annotate workercluster east trainyard.dev/forget-"} {
				if !strings.Contains(risk, want) {
					t.Errorf("no %q in: %s", want, risk)
				}
			}
		})
	}
}
