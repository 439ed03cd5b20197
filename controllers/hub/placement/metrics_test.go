// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// A worker that invents reasons makes no metrics.
func TestUnhealthyJobsAreCounted(t *testing.T) {
	dispatch := func(uid, reason string, status metav1.ConditionStatus) *v1alpha1.Dispatch {
		d := &v1alpha1.Dispatch{Spec: v1alpha1.DispatchSpec{Cluster: "unhealthy-test"}}
		d.UID = types.UID(uid)
		d.Status.Conditions = []metav1.Condition{{Type: v1alpha1.DispatchHealthy, Status: status, Reason: reason}}
		return d
	}
	counted := func(reason string) float64 {
		return testutil.ToFloat64(unhealthyJobs.WithLabelValues("unhealthy-test", reason))
	}
	before := testutil.CollectAndCount(unhealthyJobs)
	for i := range 20 {
		count(nil, dispatch(fmt.Sprint(i), fmt.Sprintf("Invented%d", i), metav1.ConditionFalse))
	}
	inLoop, another := dispatch("a", "CrashLoop", metav1.ConditionFalse), dispatch("b", "CrashLoop", metav1.ConditionFalse)
	count(nil, inLoop)
	count(nil, another)
	count(another, another.DeepCopy())
	if others, loops := counted("Other"), counted("CrashLoop"); others != 20 || loops != 2 {
		t.Errorf("%v jobs with other reasons and %v in crash loops, want 20 and 2", others, loops)
	}
	if series := testutil.CollectAndCount(unhealthyJobs) - before; series != 2 {
		t.Errorf("there are %d series more, want 2", series)
	}
	count(inLoop, dispatch("a", v1alpha1.ReasonRecovered, metav1.ConditionTrue))
	count(another, nil)
	if loops := counted("CrashLoop"); loops != 0 {
		t.Errorf("%v jobs are in crash loops, want none", loops)
	}
}
