// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// A job goes to no worker whose agent could not give its pods the grace period of the policy, and to no worker but the
// one that has its checkpoint.
func TestWhereACheckpointLetsAJobGo(t *testing.T) {
	withAgent := func(fenceAfter time.Duration) func(*Worker) {
		return func(w *Worker) {
			w.LongestGrace = longestGrace(&v1alpha1.WorkerCluster{
				Spec:   v1alpha1.WorkerClusterSpec{Failover: v1alpha1.WorkerFailover{FenceAfter: &metav1.Duration{Duration: fenceAfter}}},
				Status: v1alpha1.WorkerClusterStatus{Conditions: []metav1.Condition{{Type: v1alpha1.WorkerClusterAgentReady, Status: metav1.ConditionTrue}}},
			})
		}
	}
	failover := func(failover v1alpha1.Failover) []Policy {
		return []Policy{policy("p", 0, func(spec *v1alpha1.DispatchPolicySpec) { spec.Failover = failover })}
	}
	grace := func(seconds int64) func(*Job) {
		return func(job *Job) { job.Grace = &v1alpha1.PodGrace{Seconds: seconds, PodSets: []string{"node"}} }
	}
	claimed := func(home v1alpha1.ClusterName) func(*Job) {
		return func(job *Job) { job.Claim, job.Home = "ckpt", home }
	}
	const (
		tooLong = "checkpoint.grace of DispatchPolicy p is 5m0s, and the worker's agent can give pods with failover Fenced 4m45s: " +
			"let grace be at most that, or spec.failover.fenceAfter of the WorkerCluster at least 10m30s"
		away = "the job stays with worker east, where it ran and saves its checkpoints in PersistentVolumeClaim ckpt; " +
			"without the annotation trainyard.dev/checkpoint it may go elsewhere, and begins anew"
	)
	for name, test := range map[string]struct {
		job      []func(*Job)
		policies []Policy
		worker   Worker
		want     v1alpha1.ClusterExplanation
	}{
		"TooLong": {
			job: []func(*Job){grace(300)}, policies: failover(""), worker: worker("w", 1, 8, withAgent(10*time.Minute)),
			want: explained("w", v1alpha1.ReasonGraceTooLong, tooLong),
		},
		"LongEnough":   {job: []func(*Job){grace(300)}, policies: failover(v1alpha1.FailoverFenced), worker: worker("w", 1, 8, withAgent(630*time.Second))},
		"JustLong":     {job: []func(*Job){grace(285)}, policies: failover(v1alpha1.FailoverFenced), worker: worker("w", 1, 8, withAgent(10*time.Minute))},
		"NotFenced":    {job: []func(*Job){grace(3000)}, policies: failover(v1alpha1.FailoverHold), worker: worker("w", 1, 8, withAgent(10*time.Minute))},
		"NoAgent":      {job: []func(*Job){grace(3000)}, policies: failover(""), worker: worker("w", 1, 8)},
		"HeldAnyway":   {job: []func(*Job){grace(3000), claimed("")}, policies: failover(""), worker: worker("w", 1, 8, withAgent(10*time.Minute))},
		"AwayFromHome": {job: []func(*Job){claimed("east")}, policies: failover(""), worker: worker("w", 1, 8), want: explained("w", v1alpha1.ReasonCheckpointElsewhere, away)},
		"AtHome":       {job: []func(*Job){claimed("east")}, policies: failover(""), worker: worker("east", 1, 8)},
		"NotYetAtHome": {job: []func(*Job){claimed("")}, policies: failover(""), worker: worker("w", 1, 8)},
	} {
		t.Run(name, func(t *testing.T) {
			job := Job{UID: "uid", PodSets: []v1alpha1.PodSet{podSet(1, 8)}}
			for _, change := range test.job {
				change(&job)
			}
			got := Explain(job, test.policies, []Worker{test.worker})[0]
			if test.want.Reason == "" {
				check.Equal(t, v1alpha1.ReasonFits, got.Reason, "%s; the reason", got.Message)
				return
			}
			check.Diff(t, test.want, got, "the explanation")
			if decision := Decide(job, test.policies, []Worker{test.worker}); decision.Cluster != "" || decision.Message != string(test.want.Cluster)+": "+test.want.Message {
				t.Errorf("Decide() says %+v", decision)
			}
		})
	}
}
