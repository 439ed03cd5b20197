// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/mirror"
	"github.com/trainyard/trainyard/test/stage"
)

// A job was placed on a worker that refuses to be swept. Nothing is created there. The job's Dispatch says why, in the
// worker's words, and the job is placed again.
func TestUnsweptWorkerGivesItsJobsBack(t *testing.T) {
	words := `what is outdated on the worker cannot be deleted: admission webhook "w" denied the request`
	for name, test := range map[string]struct {
		reason string
		hub    bool
		there  func(*testing.T, *scene)
		// inherited: another manager may have asked for the copy.
		inherited, stays bool
	}{
		"Nothing":  {reason: "there is no copy", hub: true},
		"UnderWay": {reason: "a creation of another manager may be under way", hub: true, inherited: true},
		"OldCopy": {reason: "a copy of an earlier attempt has the name, and cannot be deleted", there: func(t *testing.T, s *scene) {
			s.leave(t, "1")
			d := s.dispatch(t)
			d.Spec.Attempt = 2
			must(t, s.Hub.Admin.Update(t.Context(), d))
		}},
		"Replaced": {reason: "the cache still shows the copy of an earlier attempt", there: func(t *testing.T, s *scene) {
			s.leave(t, "1")
			d := s.dispatch(t)
			d.Spec.Attempt = 2
			must(t, s.Hub.Admin.Update(t.Context(), d))
			s.options.Worker = stuckWorker{cached: s.stuck(t, s.worker.Cluster), live: s.worker.Admin}
			must(t, s.worker.Admin.Delete(t.Context(), s.copy(t)))
			s.leave(t, "2")
		}, stays: true},
		"Current": {reason: "it is the copy", there: func(t *testing.T, s *scene) { s.leave(t, "1") }, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{hubOnly: test.hub})
			if test.there != nil {
				test.there(t, s)
			}
			s.options.Collector = mirror.Refusing(words)
			if test.inherited {
				s.options.Inherited = map[types.UID]int32{s.job(t).GetUID(): 1}
			}
			s.restart()
			if result := s.reconcile(t); test.inherited {
				if d := s.dispatch(t); d.AttemptEnded() || result.RequeueAfter == 0 {
					t.Fatalf("the attempt was given up while its copy may come: %+v, %+v", d.Status, result)
				}
				s.Clock.Step(result.RequeueAfter)
				s.reconcile(t)
			}
			d := s.dispatch(t)
			mirrored := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchMirrored)
			if test.stays {
				if d.AttemptEnded() {
					t.Errorf("the attempt has ended although its copy is there: %+v", mirrored)
				}
				return
			}
			if !d.AttemptEnded() || mirrored.Reason != v1alpha1.ReasonRejected || !strings.Contains(mirrored.Message, words) {
				t.Errorf("the Dispatch says %+v, want Rejected with the worker's words: %s", mirrored, test.reason)
			}
			namespace := &corev1.Namespace{}
			err := s.worker.Admin.Get(t.Context(), client.ObjectKey{Name: s.key.Namespace}, namespace)
			if test.hub && err == nil {
				t.Error("a namespace was made on a worker where nothing may be created")
			}
		})
	}
}

// leave creates a copy of the job in an attempt.
func (s *scene) leave(t *testing.T, attempt string) {
	t.Helper()
	copy := trainjobs.New()
	copy.SetNamespace(s.key.Namespace)
	copy.SetName(s.key.Name)
	copy.SetLabels(map[string]string{v1alpha1.LabelHub: stage.HubID, v1alpha1.LabelOriginUID: string(s.job(t).GetUID())})
	copy.SetAnnotations(map[string]string{v1alpha1.AnnotationAttempt: attempt})
	copy.Object["spec"] = map[string]any{
		"managedBy": v1alpha1.ManagedByBuiltIn, "runtimeRef": map[string]any{"name": "torch-distributed"},
	}
	must(t, s.worker.Admin.Create(t.Context(), copy))
	s.settle(t)
}
