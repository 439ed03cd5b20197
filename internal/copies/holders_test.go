// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/test/check"
)

// Whoever waits for the end of a copy reads for what. The words change only with the cause.
func TestHolders(t *testing.T) {
	now := metav1.Now()
	object := func(deleted bool, finalizers ...string) *unstructured.Unstructured {
		o := trainjobs.New()
		o.SetUID("u")
		o.SetFinalizers(finalizers)
		if deleted {
			o.SetDeletionTimestamp(&now)
		}
		return o
	}
	pod := func(name string, phase corev1.PodPhase, grace int64, finalizers ...string) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers}, Spec: corev1.PodSpec{NodeName: "n1"}}
		if p.Status.Phase = phase; grace > 0 {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, &grace
		}
		return p
	}
	const foreground, tracking = "foregroundDeletion", "batch.kubernetes.io/job-tracking"
	for name, test := range map[string]struct {
		reason       string
		copy, jobSet *unstructured.Unstructured
		pods         []corev1.Pod
		want         string
	}{
		"Finalizer": {
			reason: "somebody's finalizer", copy: object(true, foreground, "backup.example.com/wait"), jobSet: trainjobs.NewJobSet(),
			want: "the copy has the finalizer backup.example.com/wait, which whoever has set it removes",
		},
		"Slow": {
			reason: "the user decides how long a pod takes", copy: object(true, foreground), jobSet: object(true, foreground),
			pods: []corev1.Pod{pod("job-node-0-0", corev1.PodRunning, 600, tracking)},
			want: "pod job-node-0-0 on node n1, which has 600 s to stop (terminationGracePeriodSeconds); if it takes longer, look at the node",
		},
		"SlowOnes": {
			reason: "the first by name, and no count", copy: object(true, foreground), jobSet: object(true, foreground),
			pods: []corev1.Pod{
				pod("c", corev1.PodRunning, 600), pod("b", corev1.PodRunning, 30), pod("a", corev1.PodSucceeded, 30, tracking),
			},
			want: "pods have not ended, such as b on node n1, which has 30 s to stop (terminationGracePeriodSeconds); if it takes longer, " +
				"look at the node",
		},
		"Both": {
			reason: "both have to go", copy: object(true, "example.com/a"), jobSet: object(true, "example.com/b"),
			pods: []corev1.Pod{pod("a", corev1.PodRunning, 0)},
			want: "pod a on node n1, which nobody has told to stop; the copy has the finalizer example.com/a, which whoever has set it " +
				"removes; its JobSet has the finalizer example.com/b, which whoever has set it removes",
		},
		"PodWithFinalizer": {
			reason: "it has ended, and is still there", jobSet: object(true, foreground),
			pods: []corev1.Pod{pod("a", corev1.PodFailed, 30, tracking, "example.com/keep")},
			want: "pod a on node n1 has the finalizer example.com/keep",
		},
		"JobSetForgotten": {
			reason: "the garbage collector may forget it", jobSet: object(false), want: "the worker's garbage collector has not deleted its JobSet",
		},
		"Collector": {
			reason: "nothing else holds it", copy: object(true, foreground), jobSet: trainjobs.NewJobSet(),
			want: "the worker's garbage collector has not removed it",
		},
		"Gone": {reason: "nothing is left", jobSet: trainjobs.NewJobSet()},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, test.want, holders(test.copy, test.jobSet, test.pods), "%s", test.reason)
		})
	}
}
