// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// answering is the client of a worker whose agent puts an answer in the place of a question about pods.
type answering struct {
	client.Client
	answer string
	// asked are the copies of the questions.
	asked []client.Object
}

// Create implements client.Client.
func (a *answering) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	question := trainjobs.AsksForPods(object)
	if question {
		a.asked = append(a.asked, object.DeepCopyObject().(client.Object))
	}
	err := a.Client.Create(ctx, object, opts...)
	if question && err == nil && a.answer != "" {
		annotations := object.GetAnnotations()
		annotations[v1alpha1.AnnotationPods] = a.answer
		object.SetAnnotations(annotations)
	}
	return err
}

// askPods has the worker asked what the pods of the job become, and returns its answer.
func (s *triedScene) askPods(t *testing.T, worker client.Client) trainjobs.Admission {
	t.Helper()
	s.options.Worker = faultyWorker{Cluster: s.worker.Connection, client: worker}
	s.restart()
	var got []trainjobs.Admission
	s.trials.Ask(workerName, s.job(t), s.would, func(answer trainjobs.Admission) { got = append(got, answer) })
	s.scene.reconcile(t)
	s.scene.reconcile(t) // It is asked once.
	if len(got) != 1 {
		t.Fatalf("the worker has answered %v, want one answer", got)
	}
	if s.copy(t) != nil {
		t.Fatal("a question has made a copy")
	}
	return got[0]
}

// A question is a dry run of the copy that the worker would get. What the agent answers is what placement hears.
func TestPodsQuestion(t *testing.T) {
	pods := []trainjobs.AdmittedPod{{Name: "node", Spec: &corev1.PodSpec{NodeSelector: map[string]string{"a": "b"}}}}
	answer, _ := trainjobs.EncodePods(pods)
	for name, tc := range map[string]struct {
		with setting
		// given changes the worker. answer is what its agent says.
		given  func(t *testing.T, s *triedScene)
		answer string
		// want is the answer, asked whether the worker gets a request.
		want  trainjobs.Admission
		asked bool
	}{
		"Answered": {answer: answer, want: trainjobs.Admission{Pods: pods}, asked: true},
		"NoAgent":  {asked: true},
		"Nonsense": {answer: "{", asked: true},
		// Nothing is created in order to ask.
		"NoNamespace": {with: setting{hubOnly: true}, answer: answer, asked: true},
		"NoRuntime":   {with: setting{spec: map[string]any{"runtimeRef": map[string]any{"name": "nowhere"}}}, answer: answer},
		"Protected": {
			given: func(_ *testing.T, s *triedScene) { s.options.Protected = func(string) bool { return true } }, answer: answer,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTriedScene(t, tc.with)
			if tc.given != nil {
				tc.given(t, s)
			}
			inner, err := s.worker.Connection.Client()
			check.Must(t, err)
			worker := &answering{Client: inner, answer: tc.answer}
			check.Diff(t, tc.want, s.askPods(t, worker), "answer")
			if asked := len(worker.asked) > 0; asked != tc.asked {
				t.Errorf("the worker was asked: %t, want %t", asked, tc.asked)
			}
			err = s.worker.Admin.Get(t.Context(), client.ObjectKey{Name: s.key.Namespace}, &corev1.Namespace{})
			if apierrors.IsNotFound(err) != tc.with.hubOnly {
				t.Errorf("the namespace on the worker: %v", err)
			}
		})
	}
}

// What the worker refuses is heard in its words. Other errors say nothing about the job.
func TestPodsQuestionIsRefused(t *testing.T) {
	path := field.NewPath("spec", "runtimeRef", "name")
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"Refused": {
			err: apierrors.NewInvalid(schema.GroupKind{Kind: "TrainJob"}, jobName, field.ErrorList{
				field.Invalid(path, "x", "pods are refused: violates PodSecurity"),
			}),
			want: "violates PodSecurity",
		},
		"FullQuota": {err: apierrors.NewForbidden(
			schema.GroupResource{Resource: "trainjobs"}, jobName,
			errors.New("exceeded quota: q, requested: count/trainjobs.trainer.kubeflow.org=1, used: 4, limited: 4"),
		)},
		"Unavailable": {err: apierrors.NewServiceUnavailable("starting")},
		"Exists":      {err: apierrors.NewAlreadyExists(schema.GroupResource{Resource: "trainjobs"}, jobName)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTriedScene(t, setting{})
			inner, err := s.worker.Connection.Client()
			check.Must(t, err)
			answer := s.askPods(t, failing{Client: inner, err: tc.err})
			if len(answer.Pods) > 0 || (tc.want == "") != (answer.Refused == "") || !strings.Contains(answer.Refused, tc.want) {
				t.Errorf("the answer is %+v, want a refusal with %q", answer, tc.want)
			}
		})
	}
}
