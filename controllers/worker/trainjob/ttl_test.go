// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// completedAt returns the status of a JobSet that completed at a time.
func completedAt(now time.Time) jobsetv1alpha2.JobSetStatus {
	status := jobSetCompleted()
	status.Conditions[0].LastTransitionTime = metav1.NewTime(now)
	return status
}

// TestTTLDeletesJobThatIsOver: only the TTL causes the next pass. The TTL of a running job does not pass.
func TestTTLDeletesJobThatIsOver(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	over := e.createJob(t, ns, "over", ttl("3"))
	late := e.createJob(t, ns, "late", ttl("3600"))
	running := e.createJob(t, ns, "running", ttl("0"))
	kept := e.createJob(t, ns, "kept")
	for _, j := range []*trainer.TrainJob{over, late, kept} {
		e.awaitJobSet(t, j)
		e.setJobSetStatus(t, j, completedAt(e.clock.Now()))
		e.awaitConditions(t, j, complete)
	}
	e.awaitJobSet(t, running)
	e.clock.SetTime(e.clock.Now().Add(5 * time.Second))
	eventually(t, "deletion", func(g gomega.Gomega) {
		// No garbage collector runs here, so the foreground deletion never ends.
		err := e.Get(t.Context(), client.ObjectKeyFromObject(over), over)
		g.Expect(apierrors.IsNotFound(err) || !over.DeletionTimestamp.IsZero()).To(gomega.BeTrue())
	})
	for _, j := range []*trainer.TrainJob{late, running, kept} {
		e.touch(t, j)
	}
	e.fence(t, ns)
	for _, j := range []*trainer.TrainJob{late, running, kept} {
		if got := e.get(t, j); !got.DeletionTimestamp.IsZero() {
			t.Errorf("%s was deleted", j.Name)
		}
	}
}

// TestCopiesHaveNoTTL: a user of the worker annotates a copy. That does not make the job run again.
func TestCopiesHaveNoTTL(t *testing.T) {
	now := time.Unix(1000, 0)
	job := &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationTTL: "0"}}}
	job.Status.Conditions = []metav1.Condition{{
		Type: trainer.TrainJobComplete, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now),
	}}
	if due, limited := expiryOf(job); !limited || !due.Equal(now) {
		t.Errorf("a TrainJob of the cluster's own goes at %s, %t", due, limited)
	}
	job.Labels = map[string]string{v1alpha1.LabelHub: "hub"}
	if due, limited := expiryOf(job); limited {
		t.Errorf("a copy goes at %s, before its hub may have seen that it has ended", due)
	}
}
