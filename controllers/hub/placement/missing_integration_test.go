// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/test/check"
)

// lacks has a worker lack fields, as its status says, and brings the event to the reconciler.
func (s *scene) lacks(t *testing.T, name v1alpha1.ClusterName, ofJobs, ofRuntimes []string) {
	t.Helper()
	s.knows(t, name, v1alpha1.TrainerAPI{Version: "v1alpha1", Release: "2.1", Missing: ofJobs, MissingOfRuntimes: ofRuntimes})
}

// knows has the status of a worker say what its TrainJob API knows, and brings the event to the reconciler.
func (s *scene) knows(t *testing.T, name v1alpha1.ClusterName, api v1alpha1.TrainerAPI) {
	t.Helper()
	s.worker(t, name, func(worker *v1alpha1.WorkerCluster) { worker.Status.Trainer = &api })
	worker := s.WorkerCluster(t, name)
	s.reconciler.watches.workers().Update(context.Background(), event.UpdateEvent{ObjectOld: worker, ObjectNew: worker}, nil)
}

// A job whose fields no worker knows waits without an attempt, and goes on when a worker is upgraded. Jobs that use other
// fields are placed meanwhile.
func TestFieldUnknownIsNotTried(t *testing.T) {
	s := newScene(t)
	for _, worker := range []v1alpha1.ClusterName{east, west} {
		s.lacks(t, worker, []string{"activeDeadlineSeconds", "runtimePatches"}, nil)
	}
	deadline := func(job *trainer.TrainJob) { job.Spec.ActiveDeadlineSeconds = 600 }
	s.Submit(t, "new", deadline)
	s.Submit(t, "plain")
	d := s.expect(t, "new", v1alpha1.ReasonNoFit)
	const words = "FieldUnknown: its TrainJobs do not have spec.activeDeadlineSeconds (Kubeflow Trainer 2.1)"
	check.Diff(t, map[v1alpha1.ClusterName]string{east: words, west: words}, reasonsOf(d), "explanation")
	check.Equal(t, int32(0), d.Spec.Attempt, "attempts")
	plain, _ := s.reconcile(t, "plain")
	if plain.Spec.Cluster == "" {
		t.Error("a job without the fields is not placed")
	}

	s.lacks(t, west, []string{"runtimePatches"}, nil)
	check.Must(t, s.reconciler.decider.Pass(t.Context()))
	if !s.drain()[s.Key("new")] {
		t.Error("nobody looks at the job again")
	}
	d, _ = s.reconcile(t, "new")
	check.Equal(t, west, d.Spec.Cluster, "the worker that knows the field now")
}

// What the runtime uses counts where it would have to be created.
func TestFieldUnknownOfRuntime(t *testing.T) {
	s := newScene(t)
	none := dispatch.NewRuntimes(nil, true)
	known := knownRuntimes{east: none, west: none}
	s.runtimes = known
	s.restart(t)
	for _, worker := range []v1alpha1.ClusterName{east, west} {
		s.lacks(t, worker, nil, []string{"mlPolicy.torch"})
	}
	s.Submit(t, "a")
	d := s.expect(t, "a", v1alpha1.ReasonNoFit)
	const words = `FieldUnknown: ClusterTrainingRuntime "torch-distributed" uses spec.mlPolicy.torch, which its runtimes do not have (Kubeflow Trainer 2.1)`
	check.Diff(t, map[v1alpha1.ClusterName]string{east: words, west: words}, reasonsOf(d), "explanation")

	known[east] = torchIs(dispatch.Comparison{Foreign: true})
	d, _ = s.reconcile(t, "a")
	check.Equal(t, east, d.Spec.Cluster, "the worker that has a runtime of its own")
}

const gracePath = "runtimePatches.trainingRuntimeSpec.template.spec.replicatedJobs.template.spec.template.spec.terminationGracePeriodSeconds"

// What Trainyard itself adds to the copy counts as what the user has written: the grace period of a policy keeps the job off
// workers that do not know it, without an attempt.
func TestFieldUnknownOfOwnPatches(t *testing.T) {
	s := newScene(t)
	know := func() {
		for _, worker := range []v1alpha1.ClusterName{east, west} {
			s.knows(t, worker, v1alpha1.TrainerAPI{Version: "v1alpha1", Release: "2.2", Missing: []string{gracePath}, Fields: []string{"runtimePatches"}})
		}
	}
	know()
	policy := s.Policy(t, v1alpha1.DispatchPolicySpec{Checkpoint: &v1alpha1.Checkpointing{Grace: &metav1.Duration{Duration: time.Minute}}})
	s.Submit(t, "saves")
	d := s.expect(t, "saves", v1alpha1.ReasonNoFit)
	words := "FieldUnknown: its TrainJobs do not have spec." + gracePath + " (Kubeflow Trainer 2.2)"
	check.Diff(t, map[v1alpha1.ClusterName]string{east: words, west: words}, reasonsOf(d), "explanation")
	check.Equal(t, int32(0), d.Spec.Attempt, "attempts")

	policy.Spec.Checkpoint.Grace = nil
	check.Must(t, s.Hub.Admin.Update(t.Context(), policy))
	s.restart(t)
	know()
	if d, _ := s.reconcile(t, "saves"); d.Spec.Cluster == "" {
		t.Errorf("without a grace period the job has no worker: %v", reasonsOf(d))
	}
}

// With skew: Translate a job comes to an older worker if all that it uses can be translated, and the record says so.
func TestTranslate(t *testing.T) {
	s := newScene(t)
	old := v1alpha1.TrainerAPI{
		Version: "v1alpha1", Release: "2.1", Fields: []string{"podTemplateOverrides", "trainer"},
		Missing: []string{"activeDeadlineSeconds", "runtimePatches"}, Untranslatable: []string{"activeDeadlineSeconds", gracePath},
	}
	know := func() {
		for _, worker := range []v1alpha1.ClusterName{east, west} {
			s.knows(t, worker, old)
		}
	}
	know()
	policy := s.Policy(t, v1alpha1.DispatchPolicySpec{Skew: v1alpha1.SkewTranslate})
	patched := func(job *trainer.TrainJob) {
		job.Spec.RuntimePatches = []trainer.RuntimePatch{{
			Manager: "user.dev/own", TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{Template: &trainer.JobSetTemplatePatch{
				Spec: &trainer.JobSetSpecPatch{ReplicatedJobs: []trainer.ReplicatedJobPatch{trainjobs.OnNodes("node", nil, []corev1.Toleration{{Key: "x"}})}},
			}},
		}}
	}
	s.Submit(t, "patched", patched)
	s.Submit(t, "plain")
	s.Submit(t, "new", patched, func(job *trainer.TrainJob) { job.Spec.ActiveDeadlineSeconds = 600 })
	d, _ := s.reconcile(t, "patched")
	check.Equal(t, v1alpha1.PodTemplateOverrides, d.Spec.TranslatedInto, "what the copy of %v has", reasonsOf(d))
	const words = "the copy says in spec.podTemplateOverrides what the job says in spec.runtimePatches, which the worker does not have (Kubeflow Trainer 2.1)"
	if decision := d.Annotations[v1alpha1.AnnotationDecision]; !strings.Contains(decision, words) {
		t.Errorf("the decision is %q", decision)
	}
	if told := strings.Join(s.Events.About("patched"), "\n"); !strings.Contains(told, words) {
		t.Errorf("the Events are %q", told)
	}
	plain, _ := s.reconcile(t, "plain")
	check.Equal(t, "", plain.Spec.TranslatedInto, "what the copy of a plain job has")
	refused := s.expect(t, "new", v1alpha1.ReasonNoFit)
	const why = "FieldUnknown: its TrainJobs do not have spec.activeDeadlineSeconds (Kubeflow Trainer 2.1, with spec.podTemplateOverrides)"
	check.Diff(t, map[v1alpha1.ClusterName]string{east: why, west: why}, reasonsOf(refused), "explanation")

	policy.Spec.Skew = v1alpha1.SkewRefuse
	check.Must(t, s.Hub.Admin.Update(t.Context(), policy))
	s.restart(t)
	know()
	s.Submit(t, "later", patched)
	later := s.expect(t, "later", v1alpha1.ReasonNoFit)
	const hint = "FieldUnknown: its TrainJobs do not have spec.runtimePatches (Kubeflow Trainer 2.1, with spec.podTemplateOverrides); " +
		"a DispatchPolicy with skew: Translate lets the copy say it with that"
	check.Diff(t, map[v1alpha1.ClusterName]string{east: hint, west: hint}, reasonsOf(later), "explanation")
}
