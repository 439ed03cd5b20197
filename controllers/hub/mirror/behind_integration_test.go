// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// If somebody changes a copy on the worker, the mirror changes it back, and tells the owner of the job what was
// changed. For that a process needs only what is on record. The mirror still looks after the copy then.
func TestEditedCopy(t *testing.T) {
	label := func(key, value string) func(*unstructured.Unstructured) {
		return func(copy *unstructured.Unstructured) {
			labels := copy.GetLabels()
			if labels[key] = value; value == "" {
				delete(labels, key)
			}
			copy.SetLabels(labels)
		}
	}
	annotation := func(key, value string) func(*unstructured.Unstructured) {
		return func(copy *unstructured.Unstructured) {
			annotations := copy.GetAnnotations()
			if annotations[key] = value; value == "" {
				delete(annotations, key)
			}
			copy.SetAnnotations(annotations)
		}
	}
	for name, test := range map[string]struct {
		edit func(*unstructured.Unstructured)
		want string
	}{
		"Field":              {setTrainer, "spec.trainer"},
		"Suspended":          {func(copy *unstructured.Unstructured) { specOf(copy)["suspend"] = true }, "spec.suspend"},
		"HubLabel":           {label(v1alpha1.LabelHub, ""), "label trainyard.dev/hub"},
		"OriginLabel":        {label(v1alpha1.LabelOriginUID, "other"), "label trainyard.dev/origin-uid"},
		"OriginLabelRemoved": {label(v1alpha1.LabelOriginUID, ""), "label trainyard.dev/origin-uid"},
		"Attempt":            {annotation(v1alpha1.AnnotationAttempt, "7"), "annotation trainyard.dev/attempt"},
		"AttemptRemoved":     {annotation(v1alpha1.AnnotationAttempt, ""), "annotation trainyard.dev/attempt"},
		"Failover":           {annotation(v1alpha1.AnnotationFailover, "Hold"), "annotation trainyard.dev/failover"},
		"Challenge":          {annotation(v1alpha1.AnnotationChallenge, ""), "annotation trainyard.dev/challenge"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{failover: v1alpha1.FailoverFenced})
			s.challenge = "1.1"
			s.getUnderWay(t)
			s.reportRunning(t)
			recorder := events.NewFakeRecorder(10)
			s.options.Recorder = recorder
			s.restart()
			before, recorded := s.copy(t), s.dispatch(t)
			s.edit(t, test.edit)
			s.reconcile(t)

			now := s.copy(t)
			check.Diff(t, identity(before), identity(now), "the copy is not as it was")
			s.expectEvent(t, recorder, `Warning CopyRestored Undid changes that somebody made to the copy on worker "worker": `+test.want)
			for range 2 {
				s.reconcile(t)
			}
			check.Diff(t, recorded, s.dispatch(t), "the Dispatch was written")
			check.Equal(t, now.GetResourceVersion(), s.copy(t).GetResourceVersion(), "the copy was written again")
			if len(recorder.Events) > 0 {
				t.Errorf("something was told again: %s", <-recorder.Events)
			}
		})
	}
}

// If a copy cannot be changed back, its job is moved and says why.
func TestEditedCopyThatStaysSo(t *testing.T) {
	t.Run("Refused", func(t *testing.T) {
		s := newScene(t, setting{})
		s.getUnderWay(t)
		s.edit(t, setTrainer)
		must(t, s.worker.Cluster.Apply(t.Context(), fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
    resourceRules: [{apiGroups: [trainer.kubeflow.org], apiVersions: ["*"], operations: [UPDATE], resources: [trainjobs]}]
  validations: [{expression: "has(object.spec.trainer)", message: "the trainer stays"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}
`, s.key.Namespace)))
		eventually(t, "admission on the worker", func(g gomega.Gomega) {
			copy := s.copy(t)
			delete(specOf(copy), "trainer")
			g.Expect(s.worker.Admin.Update(t.Context(), copy, client.DryRunAll)).To(gomega.MatchError(gomega.ContainSubstring("the trainer stays")))
		})
		s.restart()
		s.reconcile(t)
		s.expectChangedEviction(t, `spec.trainer of the copy was changed on worker "worker"`, "the trainer stays")
		s.reconcile(t)
		s.collect(t)
		s.reconcileGone(t)
		s.expectEnd(t, v1alpha1.OutcomeCopyChanged, "the trainer stays")
		if refusals := s.dispatch(t).Status.Refusals; len(refusals) != 1 || refusals[0].Cluster != workerName {
			t.Errorf("the next attempt may be there at once, and be changed again: %+v", refusals)
		}
	})
	for name, test := range map[string]struct {
		edit  func(*unstructured.Unstructured)
		field string
	}{
		"Field":     {setTrainer, "spec.trainer"},
		"Suspended": {func(copy *unstructured.Unstructured) { specOf(copy)["suspend"] = true }, "spec.suspend"},
		"Label": {func(copy *unstructured.Unstructured) {
			labels := copy.GetLabels()
			labels[v1alpha1.LabelOriginUID] = "other"
			copy.SetLabels(labels)
		}, "label trainyard.dev/origin-uid"},
	} {
		t.Run("AgainAndAgain/"+name, func(t *testing.T) {
			s := newScene(t, setting{})
			s.getUnderWay(t)
			s.reportRunning(t)
			for range 5 {
				before := identity(s.copy(t))
				s.edit(t, test.edit)
				s.reconcile(t)
				if diff := cmp.Diff(before, identity(s.copy(t))); diff != "" || s.dispatch(t).Spec.Eviction != nil {
					t.Fatalf("the copy was not changed back:\n%s", diff)
				}
			}
			s.edit(t, test.edit)
			s.reconcile(t)
			s.expectChangedEviction(t, test.field, "again and again")
		})
	}
}

// If a foreign TrainJob has taken the name of a deleted copy, the attempt ends with the outcome NameConflict, when the
// pods of the copy have ended. The pods of both have the same names. Their JobSets tell them apart.
func TestForeignTrainJobInPlaceOfTheCopy(t *testing.T) {
	s := newScene(t, setting{})
	recorder := events.NewFakeRecorder(10)
	s.getUnderWay(t)
	s.reportRunning(t)
	s.options.Recorder = recorder
	s.restart()
	must(t, s.worker.Admin.Delete(t.Context(), s.copy(t)))
	s.settle(t)
	foreign := s.createForeign(t)
	jobSet := s.createJobSet(t, foreign)
	s.createPodOf(t, "foreign", string(jobSet.GetUID()))
	ours := s.createPodOf(t, "ours", "the-former")
	s.awaitPods(t, 2)

	s.expectQuiet(t, "a pod of the copy runs")
	must(t, s.worker.Admin.Delete(t.Context(), ours, client.GracePeriodSeconds(0)))
	s.awaitPods(t, 1)
	s.reconcileGone(t)
	s.expectEnd(t, v1alpha1.OutcomeNameConflict, s.key.String())
	s.expectEvent(t, recorder, `Warning NameConflict worker "worker" has another TrainJob `+s.key.String()+", which is left alone")
	check.Diff(t, foreign, s.copy(t), "the foreign TrainJob was touched")
	s.expectNoStatus(t)
}

// If a namespace is deleted on the worker, the copy is deleted with it. During that deletion the worker refuses another
// copy in its own words.
func TestNamespaceDeletedOnTheWorker(t *testing.T) {
	s := newScene(t, setting{})
	recorder := events.NewFakeRecorder(10)
	s.getUnderWay(t)
	s.reportRunning(t)
	s.options.Recorder = recorder
	s.restart()
	must(t, s.worker.Admin.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.key.Namespace}}))
	must(t, s.worker.Admin.Delete(t.Context(), s.copy(t))) // As the namespace's controller does.
	s.settle(t)
	s.reconcileGone(t)
	s.expectEnd(t, v1alpha1.OutcomeCopyDeleted, "deleted on worker")
	s.expectEvent(t, recorder, `Warning CopyDeleted the copy was deleted on worker "worker" before it had finished`)

	d := s.dispatch(t)
	d.Spec.Attempt, d.Status.History = 2, nil
	must(t, s.Hub.Admin.Update(t.Context(), d))
	s.reconcile(t)
	d = s.dispatch(t)
	if last := d.Status.History[len(d.Status.History)-1]; last.Outcome != v1alpha1.OutcomeRejected ||
		!strings.Contains(last.Message, "because it is being terminated") {
		t.Errorf("the second attempt ended as %+v, want it Rejected in the worker's words", last)
	}
}

// setTrainer is an edit that the API takes.
func setTrainer(copy *unstructured.Unstructured) {
	specOf(copy)["trainer"] = map[string]any{"numNodes": int64(9)}
}

func specOf(job *unstructured.Unstructured) map[string]any {
	return job.Object["spec"].(map[string]any)
}

// identity is what a copy is known by, and its spec.
func identity(copy *unstructured.Unstructured) map[string]any {
	return map[string]any{
		"uid": copy.GetUID(), "labels": copy.GetLabels(), "annotations": copy.GetAnnotations(), "spec": specOf(copy),
	}
}

// createPodOf creates a pod of the JobSet with this UID.
func (s *scene) createPodOf(t *testing.T, name, jobSet string) *corev1.Pod {
	t.Helper()
	pod := s.newPod(name)
	pod.Labels[jobsetv1alpha2.JobSetUIDKey] = jobSet
	must(t, s.worker.Admin.Create(t.Context(), pod))
	return pod
}

// expectEvent checks the next Event.
func (s *scene) expectEvent(t *testing.T, recorder *events.FakeRecorder, want string) {
	t.Helper()
	select {
	case got := <-recorder.Events:
		check.Equal(t, want, got, "the Event")
	default:
		t.Errorf("there was no Event, want %q", want)
	}
}

// expectChangedEviction checks that the job is asked to move because its copy is not the job any more.
func (s *scene) expectChangedEviction(t *testing.T, words ...string) {
	t.Helper()
	eviction := s.dispatch(t).Spec.Eviction
	if eviction == nil || eviction.Reason != v1alpha1.EvictionCopyChanged {
		t.Fatalf("the eviction is %+v, want one for %s", eviction, v1alpha1.EvictionCopyChanged)
	}
	for _, word := range words {
		if !strings.Contains(eviction.Message, word) {
			t.Errorf("the eviction does not say %q: %s", word, eviction.Message)
		}
	}
}

// TestLeftOutNamesAreTold: the user learns, once for each copy, which labels and annotations have no effect.
func TestLeftOutNamesAreTold(t *testing.T) {
	s := newScene(t, setting{annotations: map[string]string{
		v1alpha1.AnnotationFenced: "1.1", v1alpha1.AnnotationTTL: "3600", v1alpha1.AnnotationClusters: "gpu=h100",
		v1alpha1.AnnotationRetry: "now",
		"note":                   "x",
	}})
	recorder := events.NewFakeRecorder(10)
	s.options.Recorder = recorder
	s.restart()
	for range 2 {
		s.reconcile(t)
	}
	want := map[string]string{v1alpha1.AnnotationAttempt: "1", v1alpha1.AnnotationSource: fmt.Sprintf("%s.1", s.job(t).GetUID()), "note": "x"}
	check.Diff(t, want, s.copy(t).GetAnnotations(), "annotations of the copy")
	s.expectEvent(t, recorder, `Warning NamesLeftOut The copy on worker "worker" was created without annotation trainyard.dev/fenced: `+
		`names under trainyard.dev/ are reserved; users may write the annotations `+strings.Join(v1alpha1.UserAnnotations(), ", "))
	if len(recorder.Events) > 0 {
		t.Errorf("something was told again: %s", <-recorder.Events)
	}
}
