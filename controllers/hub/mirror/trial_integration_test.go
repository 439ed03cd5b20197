// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/mirror"
	"github.com/trainyard/trainyard/remote"
)

// triedScene is a scene whose job waits, and the answers of the worker about it.
type triedScene struct {
	*scene
	trials  *mirror.Trials
	answers []string
	would   *v1alpha1.Dispatch
}

// newTriedScene takes the Dispatch of the scene off the hub: it is what the job would get.
func newTriedScene(t *testing.T, with setting) *triedScene {
	t.Helper()
	s := &triedScene{scene: newScene(t, with)}
	s.would = s.dispatch(t)
	waits := s.would.DeepCopy()
	waits.Finalizers = nil
	must(t, s.Hub.Admin.Patch(t.Context(), waits, client.MergeFrom(s.would)))
	must(t, s.Hub.Admin.Delete(t.Context(), waits))
	s.trials = mirror.NewTrials(func(v1alpha1.ClusterName, types.NamespacedName) {}, s.Clock)
	s.options.Trials = s.trials
	s.restart()
	return s
}

func (s *triedScene) ask(t *testing.T) {
	t.Helper()
	s.trials.Try(workerName, s.job(t), s.would, func(refused string) { s.answers = append(s.answers, refused) })
}

// try has the worker asked, and returns its answer. It fails if there is none, or if the worker has a copy now.
func (s *triedScene) try(t *testing.T) string {
	t.Helper()
	s.ask(t)
	s.scene.reconcile(t)
	if len(s.answers) != 1 {
		t.Fatalf("the worker has answered %q, want one answer", s.answers)
	}
	answer := s.answers[0]
	s.answers = nil
	if copy := s.copy(t); copy != nil && copy.GetLabels()[v1alpha1.LabelHub] != "" {
		t.Fatalf("a question has made a copy: %v", copy.Object)
	}
	return answer
}

// A worker is asked with exactly the copy that it would get, after namespace and runtime are there. Nothing is created.
func TestTrial(t *testing.T) {
	s := newTriedScene(t, setting{hubOnly: true, labels: map[string]string{"team": "a"}})
	if answer := s.try(t); answer != "" {
		t.Fatalf("the worker refuses the copy: %s", answer)
	}
	must(t, s.worker.Admin.Get(t.Context(), client.ObjectKey{Name: s.key.Namespace}, &corev1.Namespace{}))

	// It costs one request for each question, and none without.
	s.scene.reconcile(t)
	if len(s.answers) > 0 {
		t.Errorf("the worker was asked again: %q", s.answers)
	}
}

// What a worker refuses in earnest it refuses in a trial, in the same words.
func TestTrialIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		with  setting
		given func(t *testing.T, s *triedScene)
		want  string
	}{
		"Quota": {
			given: func(t *testing.T, s *triedScene) {
				t.Helper()
				quota := &corev1.ResourceQuota{
					ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: "none"},
					Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
						"count/trainjobs.trainer.kubeflow.org": resource.MustParse("0"),
					}},
				}
				must(t, s.worker.Admin.Create(t.Context(), quota))
				quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: quota.Spec.Hard} // Nobody else counts here.
				must(t, s.worker.Admin.Status().Update(t.Context(), quota))
				eventually(t, "the worker counts", func(g gomega.Gomega) {
					other := trainjobs.New()
					other.SetNamespace(s.key.Namespace)
					other.SetName("other")
					other.Object["spec"] = map[string]any{"runtimeRef": map[string]any{"name": "torch-distributed"}}
					g.Expect(s.worker.Admin.Create(t.Context(), other, client.DryRunAll)).To(gomega.MatchError(apierrors.IsForbidden, "IsForbidden"))
				})
			},
			want: "forbidden",
		},
		"Foreign": {
			given: func(t *testing.T, s *triedScene) {
				t.Helper()
				foreign := trainjobs.New()
				foreign.SetNamespace(s.key.Namespace)
				foreign.SetName(s.key.Name)
				foreign.Object["spec"] = map[string]any{"runtimeRef": map[string]any{"name": "torch-distributed"}}
				must(t, s.worker.Admin.Create(t.Context(), foreign))
			},
			want: "which is left alone",
		},
		"Protected": {
			given: func(_ *testing.T, s *triedScene) {
				s.options.Protected = func(string) bool { return true }
				s.restart()
			},
			want: "are not dispatched",
		},
		"NoRuntime": {
			with: setting{spec: map[string]any{"runtimeRef": map[string]any{"name": "nowhere"}}},
			want: "is neither on worker",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTriedScene(t, tc.with)
			if tc.given != nil {
				tc.given(t, s)
			}
			if answer := s.try(t); !strings.Contains(answer, tc.want) {
				t.Errorf("the worker says %q, want %q", answer, tc.want)
			}
		})
	}
}

// faultyWorker is a connection whose creations fail.
type faultyWorker struct {
	*remote.Cluster
	client client.Client
}

// Client implements copies.Connection.
func (f faultyWorker) Client() (client.Client, error) { return f.client, nil }

// failing is a client whose creations fail.
type failing struct {
	client.Client
	err error
}

// Create implements client.Client.
func (f failing) Create(context.Context, client.Object, ...client.CreateOption) error { return f.err }

// A worker that cannot be asked has not accepted the copy, nor refused it.
func TestTrialWithoutAnswer(t *testing.T) {
	for name, failure := range map[string]error{
		"Unavailable": apierrors.NewServiceUnavailable("starting"),
		"Webhook":     apierrors.NewInternalError(http.ErrHandlerTimeout),
		"Timeout":     apierrors.NewTimeoutError("took too long", 1),
	} {
		t.Run(name, func(t *testing.T) {
			s := newTriedScene(t, setting{})
			inner, err := s.worker.Connection.Client()
			must(t, err)
			s.options.Worker = faultyWorker{Cluster: s.worker.Connection, client: failing{Client: inner, err: failure}}
			s.restart()
			s.ask(t)
			_, err = s.mirror.Reconcile(t.Context(), reconcile.Request{NamespacedName: s.key})
			if len(s.answers) > 0 {
				t.Errorf("the answer is %q, want none: %v", s.answers, err)
			}
		})
	}
	t.Run("NoAgent", func(t *testing.T) {
		s := newTriedScene(t, setting{failover: v1alpha1.FailoverFenced})
		s.ask(t)
		if result := s.scene.reconcile(t); len(s.answers) > 0 || result.RequeueAfter == 0 {
			t.Errorf("the answers are %q, and the mirror comes again in %s, want no answer as long as the agent is silent",
				s.answers, result.RequeueAfter)
		}
		s.challenge = "1"
		s.scene.reconcile(t)
		if len(s.answers) != 1 || s.answers[0] != "" {
			t.Errorf("the answers are %q, want the copy to be accepted", s.answers)
		}
	})
	t.Run("Late", func(t *testing.T) {
		s := newTriedScene(t, setting{})
		s.ask(t)
		s.Clock.Step(time.Minute)
		s.scene.reconcile(t)
		if len(s.answers) > 0 {
			t.Errorf("the worker is asked, and says %q, though nobody waits for it any more", s.answers)
		}
	})
}
