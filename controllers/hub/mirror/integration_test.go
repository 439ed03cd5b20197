// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

// statusWindow is how long changes of a status are gathered. It does not come from the code, so that the tests notice a
// change.
const statusWindow = time.Second

// A copy is created once, whatever the process and the caches know.
func TestCopyIsCreatedOnce(t *testing.T) {
	for name, test := range map[string]struct {
		reason  string
		lags    bool
		restart bool
	}{
		"Again":               {reason: "the cache shows the copy"},
		"AgainBeforeTheCache": {reason: "the process remembers what it created", lags: true},
		"Restart":             {reason: "the cache shows the copy to a new process", restart: true},
		"RestartBeforeTheCache": {
			reason: "a new process whose cache does not show the copy yet finds it by its name", lags: true, restart: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{})
			if test.lags {
				s.options.Worker = stuckWorker{cached: s.stuck(t, s.worker.Cluster), live: s.worker.Admin}
				s.restart()
			}
			s.reconcile(t)
			created, recorded := s.copy(t), s.dispatch(t)
			if created == nil {
				t.Fatal("no copy was created")
			}
			want := map[string]any{
				"managedBy": v1alpha1.ManagedByBuiltIn, "suspend": false,
				"runtimeRef": map[string]any{"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": "torch-distributed"},
			}
			check.Diff(t, want, created.Object["spec"], "spec of the copy")
			if test.restart {
				s.restart()
			}
			s.reconcile(t)
			if result := s.reconcile(t); result.RequeueAfter == 0 {
				t.Errorf("the copy is not followed: %s: Running is not due", test.reason)
			}
			check.Diff(t, created, s.copy(t), "the copy was changed or made again: "+test.reason)
			check.Diff(t, recorded, s.dispatch(t), "the Dispatch was written: "+test.reason)
		})
	}
}

// The end of a job takes two writes: first of the TrainJob, then of the Dispatch. The first write decides: whatever the
// copy says later, the TrainJob does not change any more.
func TestEndIsFinal(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		// copy is what the copy says after the hub has said Complete: "", "Failed", or "gone".
		copy string
		// lags is true for a hub cache that does not show the hub's word at first.
		lags bool
	}{
		"CopyGone":    {reason: "the hub's word is enough", copy: "gone"},
		"CopyRuns":    {reason: "a copy that does not say it any more, say because its status was reset", copy: ""},
		"CopyFailed":  {reason: "a copy that now says the opposite", copy: "Failed"},
		"CopyAgrees":  {reason: "the usual crash between the writes", copy: "Complete"},
		"CacheLagged": {reason: "a cache that does not show the end yet must not lead to another one", copy: "Failed", lags: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{})
			s.reconcile(t)
			if test.lags {
				s.options.Hub = s.stuck(t, s.Hub.Cluster)
			}
			stage.Report(t, s.Hub.Admin, s.job(t), "Complete", 0)
			ended := s.job(t)
			if test.copy == "gone" {
				must(t, s.worker.Admin.Delete(t.Context(), s.copy(t)))
			} else {
				stage.Report(t, s.worker.Admin, s.copy(t), test.copy, 1)
			}
			s.settle(t)

			s.restart()
			result := s.reconcile(t)
			if test.lags {
				if result.RequeueAfter == 0 {
					t.Errorf("the write conflict was not to be looked at again")
				}
				s.options.Hub = s.Hub.Admin
				s.restart()
				s.reconcile(t)
			}
			finished := s.dispatch(t)
			condition := meta.FindStatusCondition(finished.Status.Conditions, v1alpha1.DispatchFinished)
			if condition == nil || condition.Status != metav1.ConditionTrue || condition.Reason != v1alpha1.ReasonComplete {
				t.Errorf("condition Finished is %+v, want it True by %s: %s", condition, v1alpha1.ReasonComplete, test.reason)
			}
			if diff := cmp.Diff([]v1alpha1.Attempt{{Attempt: 1, Cluster: workerName, Outcome: v1alpha1.OutcomeComplete, Message: "it is Complete"}},
				finished.Status.History, cmpopts.IgnoreFields(v1alpha1.Attempt{}, "To", "FirstRunningTime")); diff != "" {
				t.Errorf("history (-want +got):\n%s", diff)
			}

			if copy := s.copy(t); copy != nil {
				stage.Report(t, s.worker.Admin, copy, "Failed", 2)
				s.settle(t)
			}
			s.Clock.Step(time.Hour)
			s.reconcile(t)
			s.restart()
			s.reconcile(t)
			check.Diff(t, ended, s.job(t), "the TrainJob was written after its end: "+test.reason)
			check.Diff(t, finished, s.dispatch(t), "the Dispatch was written after its end: "+test.reason)
		})
	}
}

// A copy that would lack a field of the job is not made: if the worker's CRD does not know the field, that is a refusal
// that names the field.
func TestFieldThatTheWorkerDoesNotKnow(t *testing.T) {
	s := newScene(t, setting{spec: map[string]any{"activeDeadlineSeconds": int64(600)}})
	const path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/activeDeadlineSeconds"
	s.patchTrainJobCRD(t, `[{"op": "remove", "path": "`+path+`"}]`)
	restore := sync.OnceFunc(func() {
		s.patchTrainJobCRD(t, `[{"op": "add", "path": "`+path+`", "value": {"type": "integer", "format": "int64"}}]`)
	})
	t.Cleanup(restore)
	s.awaitAnswer(t, "unknown field")

	s.reconcile(t)
	s.expectEnd(t, v1alpha1.OutcomeRejected, `unknown field "spec.activeDeadlineSeconds"`)
	check.Equal(t, nil, s.copy(t), "a copy without the field was created")

	restore()
	s.awaitAnswer(t, "")
	for range 2 {
		s.reconcile(t)
		s.restart()
	}
	check.Equal(t, nil, s.copy(t), "a copy of the refused attempt was created later")
}

// A refusal ends the attempt, also while the hub's cache does not show that end yet.
func TestRefusalByAdmission(t *testing.T) {
	s := newScene(t, setting{})
	s.options.Hub = s.stuck(t, s.Hub.Cluster)
	s.restart()
	must(t, s.worker.Cluster.Apply(t.Context(), fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
    resourceRules: [{apiGroups: [trainer.kubeflow.org], apiVersions: ["*"], operations: [CREATE], resources: [trainjobs]}]
  validations: [{expression: "false", message: "no TrainJobs on Sundays"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}
`, s.key.Namespace)))
	s.awaitAnswer(t, "no TrainJobs on Sundays")

	s.reconcile(t)
	s.expectEnd(t, v1alpha1.OutcomeRejected, "no TrainJobs on Sundays")
	ended := s.dispatch(t)

	for _, kind := range []string{"ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"} {
		must(t, s.worker.Admin.Delete(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": map[string]any{"name": s.key.Namespace},
		}}))
	}
	s.awaitAnswer(t, "")
	s.reconcile(t) // The hub's cache still shows a Dispatch without the refusal.
	check.Equal(t, nil, s.copy(t), "a copy of an attempt that has been reported as ended was created")
	check.Diff(t, ended, s.dispatch(t), "the Dispatch was written again")
}

// A worker that cannot answer has not refused: the attempt goes on, and the copy is created when the worker can.
func TestBrokenWebhookIsNoRefusal(t *testing.T) {
	s := newScene(t, setting{})
	must(t, s.worker.Cluster.Apply(t.Context(), fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %[1]s}
webhooks:
- name: closed.trainyard.dev
  admissionReviewVersions: [v1]
  sideEffects: None
  timeoutSeconds: 2
  failurePolicy: Fail
  clientConfig: {url: "https://127.0.0.1:1/"} # Nothing listens there.
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
  rules: [{apiGroups: [trainer.kubeflow.org], apiVersions: ["*"], operations: [CREATE], resources: [trainjobs]}]
`, s.key.Namespace)))
	s.awaitAnswer(t, "failed calling webhook")
	before := s.dispatch(t)
	for range 2 {
		_, err := s.mirror.Reconcile(t.Context(), reconcile.Request{NamespacedName: s.key})
		if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
			t.Errorf("Reconcile() = %v, want the worker's error, so that it is tried again", err)
		}
		s.Clock.Step(time.Hour)
	}
	check.Diff(t, before, s.dispatch(t), "the Dispatch was written")
	must(t, s.worker.Admin.Delete(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
		"metadata": map[string]any{"name": s.key.Namespace},
	}}))
	s.awaitAnswer(t, "")
	s.reconcile(t)
	if s.copy(t) == nil {
		t.Error("no copy was created although the worker takes it now")
	}
}

// A TrainJob of the copy's name that is not the copy ends the attempt and is not touched, in the life of the job and
// after it.
func TestNameConflict(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		labels map[string]string
	}{
		"OfTheWorker":      {reason: "a user of the worker made it; no cache shows it"},
		"OfAnotherHub":     {reason: "two hubs share the worker", labels: map[string]string{v1alpha1.LabelHub: "hub-2", v1alpha1.LabelOriginUID: "x"}},
		"OfAnotherOrigin":  {reason: "a copy that the record does not speak of, as after a restore", labels: map[string]string{v1alpha1.LabelHub: stage.HubID, v1alpha1.LabelOriginUID: "x"}},
		"WithoutAnyOrigin": {reason: "our label alone says nothing", labels: map[string]string{v1alpha1.LabelHub: stage.HubID}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{})
			foreign := trainjobs.New()
			foreign.SetNamespace(s.key.Namespace)
			foreign.SetName(s.key.Name)
			foreign.SetLabels(test.labels)
			foreign.Object["spec"] = map[string]any{"runtimeRef": map[string]any{"name": "torch-distributed"}, "suspend": true}
			must(t, s.worker.Admin.Create(t.Context(), foreign))
			s.settle(t)

			s.reconcile(t)
			s.expectEnd(t, v1alpha1.OutcomeNameConflict, s.key.String())
			s.restart()
			s.reconcile(t)
			must(t, s.Hub.Admin.Delete(t.Context(), s.job(t)))
			for range 2 { // The Dispatch is deleted, and then released.
				s.reconcile(t)
			}
			check.Equal(t, nil, s.dispatch(t), "the Dispatch of a deleted job was kept for a foreign TrainJob")
			check.Diff(t, foreign, s.copy(t), "the foreign TrainJob was touched: "+test.reason)
		})
	}
}

// A copy from which somebody has taken our label is found by no cache. It gets the label back. If it is a copy of
// another attempt, garbagecollection can then delete it; otherwise the job could never be placed on this worker again.
// If it is the copy of the present attempt, the mirror can then see its end. A hub that was restored from the same
// backup as this one has copies of the same jobs.
func TestCopyWithoutOurLabel(t *testing.T) {
	for name, test := range map[string]struct {
		hub, attempt string
		want         string
	}{
		"TakenOff":      {attempt: "77", want: stage.HubID},
		"OfAnotherHub":  {attempt: "77", hub: "hub-2", want: "hub-2"},
		"OfThisAttempt": {attempt: "1", want: stage.HubID},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{})
			old := trainjobs.New()
			old.SetNamespace(s.key.Namespace)
			old.SetName(s.key.Name)
			labels := map[string]string{v1alpha1.LabelOriginUID: string(s.job(t).GetUID())}
			if test.hub != "" {
				labels[v1alpha1.LabelHub] = test.hub
			}
			old.SetLabels(labels)
			old.SetAnnotations(map[string]string{v1alpha1.AnnotationAttempt: test.attempt})
			old.Object["spec"] = map[string]any{"runtimeRef": map[string]any{"name": "torch-distributed"}, "suspend": true}
			must(t, s.worker.Admin.Create(t.Context(), old))
			s.settle(t)

			s.reconcile(t)
			check.Equal(t, test.want, s.copy(t).GetLabels()[v1alpha1.LabelHub], "the label of the hub")
			if ended := s.dispatch(t).AttemptEnded(); ended != (test.hub != "") {
				t.Errorf("the attempt has ended: %t", ended)
			}
		})
	}
}

// A hub that was restored from the same backup as this one has a copy of the same attempt of the same job. Nothing that
// happens to the job of this hub touches that copy.
func TestCopyOfAHubFromTheSameBackup(t *testing.T) {
	for name, test := range map[string]struct {
		// before the mirror looks at the job. gone: the Dispatch goes, instead of saying NameConflict.
		before func(t *testing.T, s *scene)
		gone   bool
	}{
		"Placed":  {before: func(*testing.T, *scene) {}},
		"Evicted": {before: func(t *testing.T, s *scene) { s.evict(t) }},
		"JobDeleted": {
			before: func(t *testing.T, s *scene) { must(t, s.Hub.Admin.Delete(t.Context(), s.job(t))) }, gone: true,
		},
		"DispatchDeleted": {
			before: func(t *testing.T, s *scene) { must(t, s.Hub.Admin.Delete(t.Context(), s.dispatch(t))) }, gone: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{})
			its := trainjobs.New()
			its.SetNamespace(s.key.Namespace)
			its.SetName(s.key.Name)
			its.SetLabels(map[string]string{v1alpha1.LabelOriginUID: string(s.job(t).GetUID()), v1alpha1.LabelHub: "hub-2"})
			its.SetAnnotations(map[string]string{v1alpha1.AnnotationAttempt: "1"})
			its.Object["spec"] = map[string]any{"runtimeRef": map[string]any{"name": "torch-distributed"}, "suspend": true}
			must(t, s.worker.Admin.Create(t.Context(), its))
			test.before(t, s)
			s.reconcile(t)
			if test.gone {
				s.reconcile(t) // The first may only have deleted the Dispatch.
				check.Equal(t, nil, s.dispatch(t), "the Dispatch is kept")
			} else {
				s.expectEnd(t, v1alpha1.OutcomeNameConflict, s.key.String())
			}
			check.Diff(t, its, s.copy(t), "the other hub's copy was touched")
		})
	}
}

// The copy is deleted first, in the foreground, and the Dispatch last.
func TestWithdraw(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		leave  func(t *testing.T, s *scene)
	}{
		"JobDeleted": {
			reason: "the job is gone from the hub",
			leave:  func(t *testing.T, s *scene) { must(t, s.Hub.Admin.Delete(t.Context(), s.job(t))) },
		},
		"JobDeletedInForeground": {
			reason: "the job waits for its Dispatch",
			leave: func(t *testing.T, s *scene) {
				must(t, s.Hub.Admin.Delete(t.Context(), s.job(t), client.PropagationPolicy(metav1.DeletePropagationForeground)))
			},
		},
		"DispatchDeleted": {
			reason: "somebody evicts the job",
			leave:  func(t *testing.T, s *scene) { must(t, s.Hub.Admin.Delete(t.Context(), s.dispatch(t))) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{})
			s.reconcile(t)
			test.leave(t, s)
			s.reconcile(t)
			going := s.copy(t)
			if going == nil || going.GetDeletionTimestamp() == nil {
				t.Fatalf("the copy is not being deleted, or went without its pods: %s: %v", test.reason, going)
			}
			check.Diff(t, []string{metav1.FinalizerDeleteDependents}, going.GetFinalizers(),
				"finalizers of the copy, which is to go in the foreground")
			s.restart()
			s.reconcile(t)
			if d := s.dispatch(t); d == nil || len(d.Finalizers) == 0 {
				t.Fatalf("the Dispatch was let go before the copy was gone: %+v", d)
			}
			going.SetFinalizers(nil) // The worker's garbage collector has deleted the pods.
			must(t, s.worker.Admin.Update(t.Context(), going))
			s.settle(t)
			for range 2 { // The Dispatch is deleted, if nobody has done that, and then released.
				s.reconcileGone(t)
			}
			check.Equal(t, nil, s.dispatch(t), "the Dispatch was kept although the copy is gone")
		})
	}
}

// Only the copy that was seen is deleted, not another TrainJob that has its name by now.
func TestWithdrawDeletesNothingElse(t *testing.T) {
	s := newScene(t, setting{})
	s.reconcile(t)
	s.options.Worker = stuckWorker{cached: s.stuck(t, s.worker.Cluster), live: s.worker.Admin}
	s.restart()
	must(t, s.worker.Admin.Delete(t.Context(), s.copy(t)))
	other := trainjobs.New()
	other.SetNamespace(s.key.Namespace)
	other.SetName(s.key.Name)
	other.Object["spec"] = map[string]any{"runtimeRef": map[string]any{"name": "torch-distributed"}}
	must(t, s.worker.Admin.Create(t.Context(), other))
	must(t, s.Hub.Admin.Delete(t.Context(), s.job(t)))

	result := s.reconcile(t)
	if result.RequeueAfter == 0 {
		t.Error("the conflict was not to be looked at again")
	}
	check.Diff(t, other, s.copy(t), "a TrainJob that is not the copy was touched")
}

// Changes of a status are gathered for a second. The end of a job is written at once. Nothing is written twice.
func TestStatusIsGathered(t *testing.T) {
	s := newScene(t, setting{})
	s.reconcile(t)
	stage.Report(t, s.worker.Admin, s.copy(t), "", 1)
	s.settle(t)

	quiet := s.job(t)
	expectQuiet := func(what string) {
		t.Helper()
		check.Diff(t, quiet, s.job(t), fmt.Sprintf("the TrainJob was written %s", what))
	}
	check.Equal(t, statusWindow, s.reconcile(t).RequeueAfter, "the first change is due after")
	s.Clock.Step(900 * time.Millisecond)
	stage.Report(t, s.worker.Admin, s.copy(t), "", 2)
	s.settle(t)
	check.Equal(t, 100*time.Millisecond, s.reconcile(t).RequeueAfter, "after 900ms the changes are due after")
	expectQuiet("within the second")

	s.Clock.Step(100 * time.Millisecond)
	s.reconcile(t)
	check.Diff(t, s.copy(t).Object["status"], s.job(t).Object["status"], "status after the second")
	quiet = s.job(t)
	s.Clock.Step(2 * time.Second)
	if result := s.reconcile(t); result.RequeueAfter <= statusWindow {
		t.Errorf("looked at again after %s although there is nothing to gather", result.RequeueAfter)
	}
	expectQuiet("with the same status")
	s.restart()
	s.reconcile(t)
	s.Clock.Step(2 * time.Second)
	s.reconcile(t)
	expectQuiet("with the same status by a new process")

	stage.Report(t, s.worker.Admin, s.copy(t), "Failed", 0)
	s.settle(t)
	s.reconcile(t)
	check.Diff(t, s.copy(t).Object["status"], s.job(t).Object["status"], "status at the end, which is not gathered")
	quiet = s.job(t)
	finished := s.dispatch(t)
	if !meta.IsStatusConditionTrue(finished.Status.Conditions, v1alpha1.DispatchFinished) {
		t.Errorf("the Dispatch does not say the end: %+v", finished.Status)
	}
	s.Clock.Step(time.Hour)
	s.reconcile(t)
	expectQuiet("after the end")
	check.Diff(t, finished, s.dispatch(t), "the Dispatch was written after the end")
}

// A Dispatch says Starting when its copy has lived for ten seconds, once, and a copy that is then deleted by hand ends
// the attempt: no other copy is made in its name.
func TestRunningAndCopyDeleted(t *testing.T) {
	s := newScene(t, setting{})
	s.reconcile(t)
	before := s.dispatch(t)
	s.Clock.Step(9 * time.Second)
	check.Equal(t, time.Second, s.reconcile(t).RequeueAfter, "Running is due after")
	check.Diff(t, before, s.dispatch(t), "the Dispatch was written too early")
	s.Clock.Step(time.Second)
	s.reconcile(t)
	running := s.dispatch(t)
	if running.Status.Phase != v1alpha1.PhaseStarting || running.Status.CopyUID != s.copy(t).GetUID() {
		t.Errorf("status of the Dispatch is %+v, want Starting with the copy's UID", running.Status)
	}
	s.Clock.Step(time.Hour)
	s.reconcile(t)
	check.Diff(t, running, s.dispatch(t), "the Dispatch was written again")

	must(t, s.worker.Admin.Delete(t.Context(), s.copy(t)))
	s.settle(t)
	s.restart()
	for range 2 {
		s.reconcileGone(t)
	}
	s.expectEnd(t, v1alpha1.OutcomeCopyDeleted, "deleted on worker")
	check.Equal(t, nil, s.copy(t), "a second copy of the attempt was created")
}

// What a policy does not allow to be created is not created, and the job is refused with the name of what is missing.
func TestPropagationIsNotAllowed(t *testing.T) {
	s := newScene(t, setting{hubOnly: true})
	s.options.Policy = func(context.Context, *unstructured.Unstructured) (*v1alpha1.DispatchPolicy, error) {
		return &v1alpha1.DispatchPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "strict"},
			Spec:       v1alpha1.DispatchPolicySpec{Propagate: &v1alpha1.Propagation{Namespaces: ptr.To(false)}},
		}, nil
	}
	s.restart()
	s.reconcile(t)
	s.expectEnd(t, v1alpha1.OutcomeRejected, fmt.Sprintf("no namespace %q", s.key.Namespace), "strict")
	err := s.worker.Admin.Get(t.Context(), client.ObjectKey{Name: s.key.Namespace}, &corev1.Namespace{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("get Namespace on the worker: %v, want that there is none", err)
	}
}

// patchTrainJobCRD changes the worker's CRD. It is also for cleanups, when the test's context has ended.
func (s *scene) patchTrainJobCRD(t *testing.T, patch string) {
	t.Helper()
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "trainjobs.trainer.kubeflow.org"},
	}}
	must(t, s.worker.Admin.Patch(context.WithoutCancel(t.Context()), crd, client.RawPatch(types.JSONPatchType, []byte(patch))))
}

// expectEnd checks that the Dispatch says that the attempt has ended without a copy, with these words.
func (s *scene) expectEnd(t *testing.T, outcome v1alpha1.Outcome, words ...string) {
	t.Helper()
	d := s.dispatch(t)
	condition := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchMirrored)
	if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != string(outcome) {
		t.Fatalf("condition Mirrored is %+v, want it False by %s", condition, outcome)
	}
	check.Equal(t, d.Spec.Attempt, d.Status.Attempt, "the status speaks of attempt")
	if len(d.Status.History) != 1 || d.Status.History[0].Outcome != outcome || d.Status.History[0].Cluster != workerName {
		t.Fatalf("history is %+v, want one entry %s of the worker", d.Status.History, outcome)
	}
	if !d.Status.History[0].To.Time.Equal(s.Clock.Now().Truncate(time.Second)) {
		t.Errorf("the attempt ended at %s, want the time of the hub's clock, %s", d.Status.History[0].To, s.Clock.Now())
	}
	for _, word := range words {
		if !strings.Contains(condition.Message, word) || !strings.Contains(d.Status.History[0].Message, word) {
			t.Errorf("condition or history does not say %q:\n%s\n%s", word, condition.Message, d.Status.History[0].Message)
		}
	}
}

// awaitAnswer waits until the worker refuses a creation of the copy with these words. Without words, it waits until the
// worker would take the copy.
func (s *scene) awaitAnswer(t *testing.T, words string) {
	t.Helper()
	eventually(t, "admission on the worker", func(g gomega.Gomega) {
		probe := s.job(t)
		probe.Object["metadata"] = map[string]any{"namespace": s.key.Namespace, "name": "probe"}
		err := s.worker.Admin.Create(t.Context(), probe, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
		if words == "" {
			g.Expect(err).NotTo(gomega.HaveOccurred())
		} else {
			g.Expect(err).To(gomega.MatchError(gomega.ContainSubstring(words)))
		}
	})
}
