// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

// Faults: the worker has lost JobSet's CRD, a JobSet that is not the copy's has its name, or nobody can make the copy's
// JobSet. After a minute the worker counts as having refused the copy, so that the job runs elsewhere.
func TestStuckCopyIsARefusal(t *testing.T) {
	const install = "jobsets are not served: install JobSet"
	for name, test := range map[string]struct {
		reason string
		// agent: the worker has one. stalled is what it says of the copy. event is what the Kubeflow Trainer says of it.
		agent          bool
		stalled, event string
		// other makes a JobSet of the copy's name, nil for none.
		other func(s *scene, t *testing.T)
		// missing: the worker does not serve JobSets. runs: the copy says that it runs.
		missing, runs bool
		// want are words of the refusal, empty for none.
		want string
	}{
		"NoJobSetAPI":      {reason: "nothing can start there", agent: true, missing: true, want: install},
		"NoMoreJobSetAPI":  {reason: "what ran has gone with its JobSet", missing: true, runs: true, want: install},
		"OtherJobSet":      {reason: "it stays where it is", other: (*scene).createOtherJobSet, want: "another JobSet"},
		"OtherJobSetRuns":  {reason: "the Kubeflow Trainer shows its status", runs: true, other: (*scene).createOtherJobSet, want: "another JobSet"},
		"AgentSaysSo":      {reason: "in its words", agent: true, stalled: "JobSetConflict: a JobSet is there", want: "JobSetConflict: a JobSet is there"},
		"Refused":          {reason: "by a quota of JobSets, say", agent: true, stalled: "ApplyFailed: exceeded quota", want: "exceeded quota"},
		"TrainerSaysSo":    {reason: "only in an Event", event: "exceeded quota: no-jobsets", want: "exceeded quota: no-jobsets"},
		"OtherTrouble":     {reason: "pods that crash may run another time", agent: true, stalled: "CrashLoop: it ends"},
		"Predecessor":      {reason: "the garbage collector deletes it", other: (*scene).createPredecessor},
		"NothingIsKnown":   {reason: "it may just be slow"},
		"RunsWithoutAsked": {reason: "an earlier Event does not matter then", runs: true, event: "exceeded quota: no-jobsets"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{})
			if test.other != nil {
				test.other(s, t)
			}
			if test.agent {
				s.challenge = "challenge"
			}
			if test.missing {
				s.options.JobSetMissing = func() string { return install }
			}
			s.restart()
			s.reconcile(t)
			copy := s.copy(t)
			if test.runs {
				stage.Report(t, s.worker.Admin, copy, "", 1)
			}
			if test.stalled != "" {
				copy.SetAnnotations(withAnnotation(copy, v1alpha1.AnnotationStalled, test.stalled))
				must(t, s.worker.Admin.Update(t.Context(), copy))
			}
			if test.event != "" {
				s.warnOfCopy(t, test.event)
			}
			s.settle(t)
			s.reconcile(t)
			s.Clock.Step(59 * time.Second)
			s.reconcile(t)
			if eviction := s.dispatch(t).Spec.Eviction; eviction != nil {
				t.Fatalf("eviction %+v after less than a minute", eviction)
			}
			for range 3 { // What the Events say is asked after a minute, and has to last for another minute.
				s.Clock.Step(61 * time.Second)
				s.reconcile(t)
			}
			d := s.dispatch(t)
			if test.want == "" {
				check.Equal(t, nil, d.Spec.Eviction, "eviction: %s", test.reason)
				return
			}
			if d.Spec.Eviction == nil || d.Spec.Eviction.Reason != v1alpha1.EvictionRejected || !strings.Contains(d.Spec.Eviction.Message, test.want) {
				t.Fatalf("eviction %+v, want Rejected with %q: %s", d.Spec.Eviction, test.want, test.reason)
			}
			var other *unstructured.Unstructured
			if test.other != nil {
				other = newJobSet()
				must(t, s.worker.Admin.Get(t.Context(), s.key, other))
			}
			s.collect(t)
			s.reconcileGone(t)
			s.expectEnd(t, v1alpha1.OutcomeRejected, test.want)
			if other == nil {
				return
			}
			after := newJobSet()
			must(t, s.worker.Admin.Get(t.Context(), s.key, after))
			check.Diff(t, other, after, "the other JobSet was touched")
		})
	}
}

func withAnnotation(object metav1.Object, key, value string) map[string]string {
	annotations := object.GetAnnotations()
	annotations[key] = value
	return annotations
}

// createOtherJobSet creates a JobSet of the copy's name that nobody controls, with a pod that runs. It waits until a
// copy is younger, because the API server's times are whole seconds.
func (s *scene) createOtherJobSet(t *testing.T) {
	t.Helper()
	jobSet := newJobSet()
	jobSet.SetNamespace(s.key.Namespace)
	jobSet.SetName(s.key.Name)
	jobSet.Object["spec"] = map[string]any{}
	must(t, s.worker.Admin.Create(t.Context(), jobSet))
	s.createPodOf(t, "others", string(jobSet.GetUID()))
	s.awaitPods(t, 1)
	eventually(t, "the next second", func(g gomega.Gomega) {
		g.Expect(time.Now().Unix()).To(gomega.BeNumerically(">", jobSet.GetCreationTimestamp().Unix()))
	})
	s.settle(t)
}

// createPredecessor creates the JobSet of an earlier TrainJob of the name.
func (s *scene) createPredecessor(t *testing.T) {
	t.Helper()
	earlier := trainjobs.New()
	earlier.SetName(s.key.Name)
	earlier.SetUID(types.UID("earlier"))
	s.createJobSet(t, earlier)
}

// warnOfCopy records an Event as the Kubeflow Trainer does when it cannot make the JobSet of the copy.
func (s *scene) warnOfCopy(t *testing.T, message string) {
	t.Helper()
	must(t, s.worker.Admin.Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: s.key.Namespace, Name: "not-created"},
		InvolvedObject: corev1.ObjectReference{Kind: trainer.TrainJobKind, Namespace: s.key.Namespace, Name: s.key.Name},
		Type:           corev1.EventTypeWarning, Reason: "TrainJobResourcesCreationFailed", Message: message, LastTimestamp: metav1.Now(),
	}))
}
