// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hubcache

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

func testDispatch(finished bool) *v1alpha1.Dispatch {
	d := &v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "llm", UID: "d-1", ResourceVersion: "7", Finalizers: []string{v1alpha1.FinalizerCopy},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "TrainJob", Name: "llm", UID: "j-1"}},
			Annotations:     map[string]string{v1alpha1.AnnotationDecision: "placed"},
		},
		Spec: v1alpha1.DispatchSpec{
			TrainJob: v1alpha1.TrainJobReference{Name: "llm", UID: "j-1"}, Cluster: "a", ClusterID: "c-1", Attempt: 2,
			Failover: v1alpha1.FailoverFenced, PodSets: []v1alpha1.PodSet{{Name: "node", Count: 2}},
		},
		Status: v1alpha1.DispatchStatus{
			Cluster: "b", Attempt: 1, CopyUID: "k-1", Steps: []v1alpha1.Step{{Name: "trainer"}},
			History:     []v1alpha1.Attempt{{Attempt: 1, Cluster: "b", Message: "lost"}},
			Refusals:    []v1alpha1.Refusal{{Cluster: "c", Count: 1}},
			Explanation: []v1alpha1.ClusterExplanation{{Cluster: "c", Message: "full"}},
			Conditions:  []metav1.Condition{{Type: v1alpha1.DispatchPlaced, Status: metav1.ConditionTrue, Reason: "Placed", Message: "placed on worker"}},
		},
	}
	if finished {
		d.Status.Conditions = append(d.Status.Conditions, metav1.Condition{
			Type: v1alpha1.DispatchFinished, Status: metav1.ConditionTrue, Reason: "Complete", Message: "done",
		})
	}
	return d
}

// TestStripDispatch checks that lists that a merge patch replaces as a whole stay complete.
func TestStripDispatch(t *testing.T) {
	finished := testDispatch(true)
	finished.Annotations, finished.Spec.PodSets = nil, nil
	finished.Status.Steps, finished.Status.Explanation, finished.Status.Refusals = nil, nil, nil
	cases := map[string]struct {
		reason string
		sent   *v1alpha1.Dispatch
		want   *v1alpha1.Dispatch
	}{
		"Live":     {reason: "all of it is read, and parts are written", sent: testDispatch(false), want: testDispatch(false)},
		"Finished": {reason: "what it needed, and why it waited, is asked no more", sent: testDispatch(true), want: finished},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.sent.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "trainyard"}}
			got, err := StripDispatch(tc.sent)
			if diff := cmp.Diff(any(tc.want), got); err != nil || diff != "" {
				t.Errorf("%s: error %v (-want +got):\n%s", tc.reason, err, diff)
			}
		})
	}
}
