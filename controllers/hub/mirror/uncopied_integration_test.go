// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// TestChangeThatReachesNoCopy: a user changes a job that runs, and no webhook is there to refuse it. The user is told
// once for each change, and not of changes that a copy does not follow by design.
func TestChangeThatReachesNoCopy(t *testing.T) {
	s := newScene(t, setting{spec: map[string]any{"runtimePatches": []any{map[string]any{"manager": "a.dev/b"}}}})
	recorder := events.NewFakeRecorder(10)
	s.options.Recorder = recorder
	s.restart()
	s.getUnderWay(t)
	change := func(patches ...any) {
		t.Helper()
		job := s.job(t)
		specOf(job)["runtimePatches"] = patches
		must(t, s.Hub.Admin.Update(t.Context(), job))
		for range 3 {
			s.reconcile(t)
		}
	}
	quiet := func(why string) {
		t.Helper()
		if len(recorder.Events) > 0 {
			t.Errorf("%s: %s", why, <-recorder.Events)
		}
	}
	own, kueue := map[string]any{"manager": "a.dev/b"}, map[string]any{"manager": "kueue.x-k8s.io/manager"}
	quiet("nothing has changed")
	change(own, kueue)
	quiet("the entry of the hub's Kueue is in no copy")
	change(own, kueue, map[string]any{"manager": "c.dev/d"})
	told := `Warning ChangeNotCopied The copy on worker "worker" does not get the change of spec.runtimePatches[c.dev/d], ` +
		`because it was made before; to bring the change to a new copy, suspend the TrainJob, and resume it`
	s.expectEvent(t, recorder, told)
	quiet("it was told already")
	change(own)
	quiet("the change was taken back")
	change()
	s.expectEvent(t, recorder, strings.Replace(told, "[c.dev/d]", "[a.dev/b]", 1))
	check.Equal(t, 1, len(specOf(s.copy(t))["runtimePatches"].([]any)), "the copy was changed")
}

// TestRefusedResumptionIsTold: a worker's agent has stopped a copy, and the worker refuses the write that resumes it.
// The owner of the job learns that from an Event.
func TestRefusedResumptionIsTold(t *testing.T) {
	s := newScene(t, setting{failover: v1alpha1.FailoverFenced})
	s.challenge = "run.1"
	recorder := events.NewFakeRecorder(10)
	s.options.Recorder = recorder
	s.restart()
	s.getUnderWay(t)
	s.edit(t, func(copy *unstructured.Unstructured) {
		specOf(copy)["suspend"] = true
		copy.SetAnnotations(map[string]string{
			v1alpha1.AnnotationFenced: "run.1", v1alpha1.AnnotationFailover: string(v1alpha1.FailoverFenced),
			v1alpha1.AnnotationChallenge: "run.1", v1alpha1.AnnotationAttempt: "1",
			v1alpha1.AnnotationSource: copy.GetAnnotations()[v1alpha1.AnnotationSource],
		})
	})
	worker, err := s.worker.Connection.Client()
	must(t, err)
	refusal := apierrors.NewForbidden(schema.GroupResource{Group: "trainer.kubeflow.org", Resource: "trainjobs"}, "job", nil)
	s.options.Worker = stuckWorker{live: s.worker.Admin, cached: interceptor.NewClient(watchless{worker}, interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return refusal
		},
	})}
	s.restart()
	for range 3 {
		if _, err := s.mirror.Reconcile(t.Context(), reconcile.Request{NamespacedName: s.key}); err == nil {
			t.Error("the resumption was not tried")
		}
		s.Clock.Step(time.Minute)
	}
	s.expectEvent(t, recorder, "Warning ChangeRefused Worker worker refuses to let the copy go on: "+refusal.Error())
	if len(recorder.Events) > 0 {
		t.Errorf("told again: %s", <-recorder.Events)
	}
}
