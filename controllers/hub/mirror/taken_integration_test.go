// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

// createGoing creates a TrainJob of the job's name on the worker. The TrainJob is being deleted, and stays until
// release is called.
func (s *scene) createGoing(t *testing.T, labels, annotations map[string]string) (release func()) {
	t.Helper()
	going := trainjobs.New()
	going.SetNamespace(s.key.Namespace)
	going.SetName(s.key.Name)
	going.SetLabels(labels)
	going.SetAnnotations(annotations)
	going.SetFinalizers([]string{"example.com/pods"})
	going.Object["spec"] = map[string]any{"runtimeRef": map[string]any{"name": "torch-distributed"}}
	must(t, s.worker.Admin.Create(t.Context(), going))
	must(t, s.worker.Admin.Delete(t.Context(), going))
	return func() {
		going = s.copy(t)
		going.SetFinalizers(nil)
		must(t, s.worker.Admin.Update(t.Context(), going))
		s.settle(t)
	}
}

// The mirror waits for a name that will be free soon, whether the cache shows the TrainJob that has it or only the
// worker's error does. That TrainJob is the copy of an earlier TrainJob, which was deleted while the worker was away,
// or of an earlier attempt.
func TestNameOfACopyThatGoes(t *testing.T) {
	former := map[string]string{v1alpha1.LabelHub: stage.HubID, v1alpha1.LabelOriginUID: "former"}
	for name, tc := range map[string]struct {
		reason string
		// labels of the TrainJob that is being deleted. Nil: the labels of an earlier attempt of the job.
		labels map[string]string
		// unseen: the worker's cache does not show it yet.
		unseen bool
		// stays: the TrainJob stays for longer than the mirror waits. evicted: the job has to leave in that time.
		stays, evicted bool
		conflict       bool
		words          string
	}{
		"Former":        {reason: "the name is free soon", labels: former},
		"FormerUnseen":  {reason: "the name is free soon", labels: former, unseen: true},
		"Attempt":       {reason: "it is ours"},
		"AttemptUnseen": {reason: "it is ours", unseen: true},
		"Stays":         {reason: "its pods do not end", labels: former, stays: true, conflict: true, words: "being deleted"},
		"StaysUnseen":   {reason: "its pods do not end", labels: former, unseen: true, stays: true, conflict: true, words: "being deleted"},
		"Evicted":       {reason: "there is nothing to wait for", labels: former, evicted: true, conflict: true, words: "being deleted"},
		"Foreign":       {reason: "nobody knows what for", labels: map[string]string{"app": "x"}, conflict: true, words: "left alone"},
		"OtherHub":      {reason: "it is as foreign", labels: map[string]string{v1alpha1.LabelHub: "hub-2"}, conflict: true, words: "left alone"},
		"OtherHubsOrigin": {
			reason: "its hub says so", labels: map[string]string{v1alpha1.LabelHub: "hub-2", v1alpha1.LabelOriginUID: "former"},
			conflict: true, words: "left alone",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{})
			labels, annotations := tc.labels, map[string]string{v1alpha1.AnnotationAttempt: "0"}
			if labels == nil {
				labels = map[string]string{v1alpha1.LabelHub: stage.HubID, v1alpha1.LabelOriginUID: string(s.job(t).GetUID())}
			}
			if tc.unseen {
				s.options.Worker = stuckWorker{cached: s.stuck(t, s.worker.Cluster), live: s.worker.Admin}
				s.restart()
			}
			release := s.createGoing(t, labels, annotations)
			s.settle(t)
			if tc.evicted {
				s.evict(t)
			}
			s.Clock.Step(time.Minute) // The hub's caches are believed.
			before := s.copy(t)
			s.reconcile(t)
			if tc.stays {
				s.reconcile(t)
				s.Clock.Step(2 * time.Minute)
				s.reconcile(t)
			}
			if diff := before.GetResourceVersion() != s.copy(t).GetResourceVersion(); diff {
				t.Error("what goes was written")
			}
			if tc.conflict {
				s.expectEnd(t, v1alpha1.OutcomeNameConflict, tc.words)
				return
			}
			if d := s.dispatch(t); d.AttemptEnded() || len(d.Status.History) > 0 {
				t.Fatalf("the attempt has ended, but %s: %+v", tc.reason, d.Status.History)
			}
			release()
			s.options.Worker = s.worker.Connection
			s.restart()
			s.reconcile(t)
			if copy := s.copy(t); copy == nil || copy.GetUID() == before.GetUID() {
				t.Errorf("no copy was made when the name was free")
			}
		})
	}
}

// Fault: the worker's cache still shows a foreign TrainJob, which is gone. The attempt does not end because of it.
func TestNameThatTheCacheShowsAsTaken(t *testing.T) {
	for name, going := range map[string]bool{"Foreign": false, "Going": true} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{})
			release := s.createGoing(t, map[string]string{v1alpha1.LabelHub: stage.HubID, v1alpha1.LabelOriginUID: "former"}, nil)
			if !going {
				release()
				s.createForeign(t)
			}
			s.options.Worker = stuckWorker{cached: s.stuck(t, s.worker.Cluster), live: s.worker.Admin}
			s.restart()
			if going {
				release()
			} else {
				must(t, s.worker.Admin.Delete(t.Context(), s.copy(t)))
			}
			s.Clock.Step(time.Minute)
			s.reconcile(t)
			if s.dispatch(t).AttemptEnded() || s.copy(t) == nil {
				t.Errorf("no copy was made although the name is free: %+v", s.dispatch(t).Status)
			}
		})
	}
}

// If somebody deletes the copy of the current attempt before the cache has shown it, the attempt ends with the copy.
func TestOwnCopyThatGoesUnseen(t *testing.T) {
	s := newScene(t, setting{})
	s.options.Worker = stuckWorker{cached: s.stuck(t, s.worker.Cluster), live: s.worker.Admin}
	s.restart()
	release := s.createGoing(t, map[string]string{
		v1alpha1.LabelHub: stage.HubID, v1alpha1.LabelOriginUID: string(s.job(t).GetUID()),
	}, map[string]string{v1alpha1.AnnotationAttempt: "1"})
	s.Clock.Step(time.Minute)
	if result := s.reconcile(t); result.RequeueAfter <= 0 {
		t.Error("nobody looks again")
	}
	if s.dispatch(t).AttemptEnded() {
		t.Fatal("the attempt has ended while its copy is there")
	}
	release()
	s.Clock.Step(2 * time.Minute) // The copy is believed in no more.
	s.reconcileGone(t)
	s.expectEnd(t, v1alpha1.OutcomeCopyDeleted, "deleted on worker")
	var none *unstructured.Unstructured
	check.Equal(t, none, s.copy(t), "there is another copy")
}
