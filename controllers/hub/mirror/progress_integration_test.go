// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/mirror"
	"github.com/trainyard/trainyard/internal/inbox"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

// runningDelay is how long a copy lives before its Dispatch says that it is there.
const runningDelay = 10 * time.Second

// Two moments of the worker.
const (
	resumedAt = "2026-01-02T03:00:00Z"
	endedAt   = "2026-01-02T03:04:05Z" // See say.
)

// course is what a Dispatch shows of its copy.
type course struct {
	Steps    []v1alpha1.Step
	Restarts int32
	// Start and End are empty if they are not shown.
	Start, End string
}

func (s *scene) course(t *testing.T) course {
	t.Helper()
	status := s.dispatch(t).Status
	return course{Steps: status.Steps, Restarts: status.Restarts, Start: moment(status.StartTime), End: moment(status.CompletionTime)}
}

func moment(t *metav1.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func (s *scene) expectCourse(t *testing.T, when string, want course) {
	t.Helper()
	if diff := cmp.Diff(want, s.course(t)); diff != "" {
		t.Errorf("the Dispatch shows %s (-want +got):\n%s", when, diff)
	}
}

func trainerStep(state v1alpha1.StepState) []v1alpha1.Step {
	return []v1alpha1.Step{{Name: v1alpha1.StepTrainer, State: state}}
}

// jobSet is the copy's JobSet on the worker as its controller would have it after some restarts. resumed is empty if it
// was never suspended.
func (s *scene) jobSet(t *testing.T, restarts int64, resumed string) *unstructured.Unstructured {
	t.Helper()
	jobSet := newJobSet()
	if err := s.worker.Admin.Get(t.Context(), s.key, jobSet); err != nil {
		must(t, client.IgnoreNotFound(err))
		jobSet = newJobSet()
		jobSet.SetNamespace(s.key.Namespace)
		jobSet.SetName(s.key.Name)
		owner := s.copy(t)
		jobSet.SetOwnerReferences([]metav1.OwnerReference{{
			APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(), Controller: ptr.To(true),
		}})
		jobSet.Object["spec"] = map[string]any{"replicatedJobs": []any{map[string]any{
			"name": "node", "template": map[string]any{"spec": map[string]any{"template": map[string]any{
				"spec": map[string]any{"containers": []any{map[string]any{"name": "node", "image": "image"}}},
			}}},
		}}}
		must(t, s.worker.Admin.Create(t.Context(), jobSet))
	}
	status := map[string]any{"restarts": restarts}
	if resumed != "" {
		status["conditions"] = []any{map[string]any{
			"type": "Suspended", "status": "False", "reason": "ResumeJobs", "message": "", "lastTransitionTime": resumed,
		}}
	}
	jobSet.Object["status"] = status
	must(t, s.worker.Admin.Status().Update(t.Context(), jobSet))
	s.settle(t)
	return jobSet
}

func (s *scene) deleteJobSet(t *testing.T) {
	t.Helper()
	jobSet := newJobSet()
	jobSet.SetNamespace(s.key.Namespace)
	jobSet.SetName(s.key.Name)
	must(t, s.worker.Admin.Delete(t.Context(), jobSet, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	s.settle(t)
}

// trains makes the copy say what its trainer does: "ready", "succeeded", "failed", or none of these. end is as in say.
func (s *scene) trains(t *testing.T, counter, end string) {
	t.Helper()
	stage.Report(t, s.worker.Admin, s.copy(t), end, 1)
	if counter != "" {
		copy := s.copy(t)
		jobs, _, _ := unstructured.NestedSlice(copy.Object, "status", "jobsStatus")
		fields := jobs[0].(map[string]any)
		fields["active"], fields[counter] = int64(0), int64(1)
		must(t, unstructured.SetNestedSlice(copy.Object, jobs, "status", "jobsStatus"))
		must(t, s.worker.Admin.Status().Update(t.Context(), copy))
	}
	s.settle(t)
}

// run brings the scene to where its Dispatch says that there is a copy.
func (s *scene) run(t *testing.T) {
	t.Helper()
	s.reconcile(t)
	s.Clock.Step(runningDelay)
	s.reconcile(t)
	if d := s.dispatch(t); !d.WasCopied() {
		t.Fatalf("phase is %s, and no copy is reported", d.Status.Phase)
	}
}

// expectQuiet fails if the Dispatch is written by a reconcile.
func (s *scene) expectQuiet(t *testing.T, why string) reconcile.Result {
	t.Helper()
	before := s.dispatch(t)
	result := s.reconcile(t)
	if diff := cmp.Diff(before, s.dispatch(t)); diff != "" {
		t.Errorf("the Dispatch was written: %s (-before +after):\n%s", why, diff)
	}
	return result
}

// The Dispatch of a short job is written once, with everything.
func TestProgressOfAShortJob(t *testing.T) {
	s := newScene(t, setting{})
	writes := s.watchDispatch(t)
	s.reconcile(t)
	created := s.jobSet(t, 0, "").GetCreationTimestamp()
	for _, counter := range []string{"", "ready", "failed", ""} {
		s.trains(t, counter, "")
		s.expectQuiet(t, "a short job is written once")
		s.Clock.Step(2 * time.Second)
		s.expectQuiet(t, "a short job is written once")
	}
	s.jobSet(t, 2, "")
	s.expectQuiet(t, "a short job is written once")
	s.trains(t, "succeeded", "Complete")
	s.reconcile(t)
	s.expectCourse(t, "at the end", course{
		Steps: trainerStep(v1alpha1.StepSucceeded), Restarts: 2, Start: moment(&created), End: endedAt,
	})
	finished := s.dispatch(t)
	s.jobSet(t, 3, "")
	s.Clock.Step(time.Hour)
	s.expectQuiet(t, "it is over")
	check.Equal(t, 1, writes(finished.ResourceVersion), "how often the Dispatch was written")
}

// watchDispatch returns a function that counts the changes of the Dispatch up to a version.
func (s *scene) watchDispatch(t *testing.T) func(last string) int {
	t.Helper()
	watcher, err := s.Hub.Admin.Watch(t.Context(), &v1alpha1.DispatchList{}, client.InNamespace(s.key.Namespace))
	must(t, err)
	t.Cleanup(watcher.Stop)
	return func(last string) (count int) {
		for {
			select {
			case event := <-watcher.ResultChan():
				if event.Type == watch.Modified {
					count++
				}
				if d, ok := event.Object.(*v1alpha1.Dispatch); ok && d.ResourceVersion == last {
					return count
				}
			case <-time.After(patience):
				t.Fatalf("the Dispatch was not seen in version %s", last)
			}
		}
	}
}

// The Dispatch of a long job shows the changes of its steps and restarts. Changes are gathered for a second, and
// nothing is written twice.
func TestProgressIsGathered(t *testing.T) {
	s := newScene(t, setting{})
	s.reconcile(t)
	created := moment(ptr.To(s.jobSet(t, 0, "").GetCreationTimestamp()))
	s.trains(t, "", "")
	s.run(t)
	s.expectCourse(t, "with the copy", course{Steps: trainerStep(v1alpha1.StepWaiting), Start: created})
	s.Clock.Step(2 * statusWindow)
	s.reconcile(t) // The TrainJob has got its status, too.

	s.trains(t, "ready", "")
	check.Equal(t, statusWindow, s.expectQuiet(t, "changes are gathered").RequeueAfter, "the change is due after")
	s.Clock.Step(900 * time.Millisecond)
	s.jobSet(t, 1, "")
	check.Equal(t, 100*time.Millisecond, s.expectQuiet(t, "changes are gathered").RequeueAfter,
		"after 900ms the changes are due after")
	s.Clock.Step(100 * time.Millisecond)
	s.reconcile(t)
	s.expectCourse(t, "after the second", course{Steps: trainerStep(v1alpha1.StepRunning), Restarts: 1, Start: created})
	s.Clock.Step(time.Hour)
	s.expectQuiet(t, "nothing has changed")

	s.jobSet(t, 2, "") // The copy is as before.
	s.expectQuiet(t, "changes are gathered")
	s.Clock.Step(statusWindow)
	s.reconcile(t)
	s.expectCourse(t, "after a restart that only the JobSet knows", course{Steps: trainerStep(v1alpha1.StepRunning), Restarts: 2, Start: created})

	s.trains(t, "", "")
	s.expectQuiet(t, "changes are gathered")
	s.trains(t, "ready", "")
	s.Clock.Step(statusWindow)
	s.expectQuiet(t, "what has changed back is no change")
	s.trains(t, "", "")
	check.Equal(t, statusWindow, s.expectQuiet(t, "changes are gathered anew").RequeueAfter,
		"another change is due after")
	s.trains(t, "ready", "")

	s.restart()
	s.Clock.Step(time.Hour)
	s.expectQuiet(t, "a new process has nothing new to say")
	s.trains(t, "failed", "Failed")
	s.reconcile(t)
	s.expectCourse(t, "at the end, which does not wait", course{
		Steps: trainerStep(v1alpha1.StepFailed), Restarts: 2, Start: created, End: endedAt,
	})
}

// A job that waited says Starting at once, and yet costs no other write if it is short.
func TestProgressOfAJobThatWaited(t *testing.T) {
	s := newScene(t, setting{})
	waiting := s.dispatch(t)
	waiting.Status.Phase = v1alpha1.PhaseWaiting
	must(t, s.Hub.Admin.Status().Update(t.Context(), waiting))
	s.reconcile(t)
	s.reconcile(t)
	if phase := s.dispatch(t).Status.Phase; phase != v1alpha1.PhaseStarting {
		t.Fatalf("phase is %s, want Starting", phase)
	}
	s.trains(t, "ready", "")
	s.expectQuiet(t, "it may be short")
	s.Clock.Step(runningDelay - time.Second)
	check.Equal(t, time.Second, s.expectQuiet(t, "it may be short").RequeueAfter, "steps are due after")
	s.Clock.Step(time.Second)
	s.reconcile(t)
	s.expectCourse(t, "after ten seconds", course{Steps: trainerStep(v1alpha1.StepRunning)})
}

// The JobSet may be gone before the mirror sees the end of its copy. The process that had seen the JobSet may be gone
// too.
func TestJobSetIsGoneAtTheEnd(t *testing.T) {
	for name, test := range map[string]struct {
		reason       string
		long, forget bool
		want         course
	}{
		"Short": {
			reason: "the process has seen it", want: course{Steps: trainerStep(v1alpha1.StepSucceeded), Restarts: 1, Start: resumedAt, End: endedAt},
		},
		"Long": {
			reason: "the Dispatch shows it", long: true, forget: true,
			want: course{Steps: trainerStep(v1alpha1.StepSucceeded), Restarts: 1, Start: resumedAt, End: endedAt},
		},
		"ShortAndRestarted": {
			reason: "nobody has seen it", forget: true, want: course{Steps: trainerStep(v1alpha1.StepSucceeded), End: endedAt},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{})
			s.reconcile(t)
			s.jobSet(t, 1, resumedAt)
			s.reconcile(t)
			if test.long {
				s.run(t)
			}
			s.deleteJobSet(t)
			s.trains(t, "succeeded", "Complete")
			if test.forget {
				s.restart()
			}
			s.reconcile(t)
			s.expectCourse(t, "at the end: "+test.reason, test.want)
		})
	}
}

// A suspended job has no start time. A resumed job has the time of its last start.
func TestStartOfASuspendedJob(t *testing.T) {
	s := newScene(t, setting{})
	s.reconcile(t)
	jobSet := s.jobSet(t, 1, resumedAt)
	s.trains(t, "ready", "")
	s.run(t)
	s.expectCourse(t, "while it runs", course{Steps: trainerStep(v1alpha1.StepRunning), Restarts: 1, Start: resumedAt})

	must(t, unstructured.SetNestedField(jobSet.Object, true, "spec", "suspend"))
	must(t, s.worker.Admin.Update(t.Context(), jobSet))
	s.trains(t, "suspended", "")
	s.reconcile(t)
	s.Clock.Step(statusWindow)
	s.reconcile(t)
	s.expectCourse(t, "while it is suspended", course{Steps: trainerStep(v1alpha1.StepWaiting), Restarts: 2})

	must(t, unstructured.SetNestedField(jobSet.Object, false, "spec", "suspend"))
	must(t, s.worker.Admin.Update(t.Context(), jobSet))
	const again = "2026-01-02T03:02:00Z"
	s.jobSet(t, 1, again)
	s.trains(t, "ready", "")
	s.reconcile(t)
	s.Clock.Step(statusWindow)
	s.reconcile(t)
	s.expectCourse(t, "when it goes on", course{Steps: trainerStep(v1alpha1.StepRunning), Restarts: 2, Start: again})
}

// Nothing of an attempt is shown of the next one.
func TestProgressOfAnotherAttempt(t *testing.T) {
	s := newScene(t, setting{})
	s.reconcile(t)
	s.jobSet(t, 5, resumedAt)
	s.trains(t, "ready", "")
	s.run(t)
	s.expectCourse(t, "of the first attempt", course{Steps: trainerStep(v1alpha1.StepRunning), Restarts: 5, Start: resumedAt})

	must(t, s.worker.Admin.Delete(t.Context(), s.copy(t)))
	s.deleteJobSet(t)
	s.reconcileGone(t)
	s.expectEnd(t, v1alpha1.OutcomeCopyDeleted, "deleted on worker")
	s.expectCourse(t, "after the first attempt", course{})

	moved := s.dispatch(t)
	moved.Spec.Attempt = 2
	must(t, s.Hub.Admin.Update(t.Context(), moved))
	s.reconcile(t)
	s.run(t)
	s.expectCourse(t, "of the second attempt, which has no JobSet yet", course{})
	s.jobSet(t, 1, "2026-01-02T03:03:00Z")
	s.trains(t, "ready", "")
	s.reconcile(t)
	s.Clock.Step(statusWindow)
	s.reconcile(t)
	s.expectCourse(t, "of the second attempt", course{Steps: trainerStep(v1alpha1.StepRunning), Restarts: 1, Start: "2026-01-02T03:03:00Z"})
}

// A worker that forbids the hub to read JobSets gets and ends jobs as any other worker, and their steps are shown.
func TestWorkerThatHidesItsJobSets(t *testing.T) {
	s := newScene(t, setting{})
	s.hideJobSets(t)
	s.reconcile(t)
	s.jobSet(t, 1, resumedAt)
	s.trains(t, "ready", "")
	s.run(t)
	s.expectCourse(t, "with the copy", course{Steps: trainerStep(v1alpha1.StepRunning)})
	s.trains(t, "succeeded", "Complete")
	s.reconcile(t)
	s.expectCourse(t, "at the end, which waits for nothing", course{Steps: trainerStep(v1alpha1.StepSucceeded), End: endedAt})
}

// hideJobSets makes the mirror use a connection whose user may do what is needed, and not read JobSets.
func (s *scene) hideJobSets(t *testing.T) {
	t.Helper()
	name := "hides-" + s.key.Namespace
	credentials := stage.Account(t, s.worker.Cluster, name,
		rbacv1.PolicyRule{APIGroups: []string{"trainer.kubeflow.org"}, Resources: []string{"*"}, Verbs: []string{"*"}},
		rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces", "nodes", "pods"}, Verbs: []string{"get", "list", "watch", "create"},
		})
	hiding := *s.worker
	s.Fleet.Ensure(v1alpha1.ClusterName(name), credentials, s.worker.ID)
	t.Cleanup(func() { s.Fleet.Remove(v1alpha1.ClusterName(name)) })
	hiding.Connection, _ = s.Fleet.Get(v1alpha1.ClusterName(name))
	stage.AwaitConnected(t, hiding.Connection)
	s.worker, s.secretive, s.options.Worker = &hiding, true, hiding.Connection
	s.restart()
}

// Kueue on the worker stops a copy that runs, and starts it again. That counts as a restart, whether the hub has seen
// the stop or only that the copy has another start, and an Event says it.
func TestRestartByKueueIsCounted(t *testing.T) {
	const later = "2026-01-02T05:04:05Z"
	for name, seen := range map[string]bool{"Seen": true, "Unseen": false} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{})
			recorder := events.NewFakeRecorder(10)
			s.options.Recorder = recorder
			s.restart()
			s.reconcile(t)
			jobSet := s.jobSet(t, 1, resumedAt)
			s.trains(t, "ready", "")
			s.run(t)
			if seen {
				must(t, unstructured.SetNestedField(jobSet.Object, true, "spec", "suspend"))
				must(t, s.worker.Admin.Update(t.Context(), jobSet))
				s.trains(t, "suspended", "")
				s.reconcile(t)
				s.Clock.Step(statusWindow)
				s.reconcile(t)
				must(t, unstructured.SetNestedField(jobSet.Object, false, "spec", "suspend"))
				must(t, s.worker.Admin.Update(t.Context(), jobSet))
			}
			s.jobSet(t, 1, later)
			s.trains(t, "ready", "")
			s.reconcile(t)
			s.Clock.Step(statusWindow)
			s.reconcile(t)
			s.expectCourse(t, "after the restart", course{Steps: trainerStep(v1alpha1.StepRunning), Restarts: 2, Start: later})
			if stops := s.dispatch(t).Status.Stops; stops != 1 {
				t.Errorf("the Dispatch says %d stops, want 1", stops)
			}
			s.restart()
			s.Clock.Step(time.Hour)
			s.expectQuiet(t, "another process counts the same")
			told := 0
			for len(recorder.Events) > 0 {
				if strings.Contains(<-recorder.Events, "CopyStopped") {
					told++
				}
			}
			check.Equal(t, 1, told, "how often the stop was told")
		})
	}
}

// A JobSet's restarts and stops wake its key, and nothing else of JobSets does.
func TestJobSetEvents(t *testing.T) {
	s := newScene(t, setting{})
	s.reconcile(t)
	keys := s.listen(t)

	jobSet := s.jobSet(t, 0, "")
	s.jobSet(t, 0, "")
	foreign := newJobSet()
	foreign.SetNamespace(s.key.Namespace)
	foreign.SetName("foreign")
	foreign.Object["spec"] = jobSet.Object["spec"]
	must(t, s.worker.Admin.Create(t.Context(), foreign))
	foreign.Object["status"] = map[string]any{"restarts": int64(7)}
	must(t, s.worker.Admin.Status().Update(t.Context(), foreign))
	eventually(t, "worker's cache", func(g gomega.Gomega) {
		cached := newJobSet()
		g.Expect(s.worker.Connection.Cache().Get(t.Context(), client.ObjectKeyFromObject(foreign), cached)).To(gomega.Succeed())
		g.Expect(cached.GetResourceVersion()).To(gomega.Equal(foreign.GetResourceVersion()))
	})
	for restarts := int64(1); restarts <= 2; restarts++ {
		s.jobSet(t, restarts, "")
		wantKey(t, s.key, keys)
	}
	must(t, s.worker.Admin.Get(t.Context(), s.key, jobSet))
	must(t, unstructured.SetNestedField(jobSet.Object, true, "spec", "suspend"))
	must(t, s.worker.Admin.Update(t.Context(), jobSet))
	wantKey(t, s.key, keys)
	select {
	case key := <-keys:
		t.Errorf("key %s came once too often", key)
	default:
	}
	select {
	case key := <-s.listen(t): // A new process finds a JobSet that has restarted meanwhile.
		if key != s.key {
			t.Errorf("key %s came, want %s", key, s.key)
		}
	case <-time.After(patience):
		t.Error("a JobSet that had restarted before woke nobody")
	}
}

func wantKey(t *testing.T, want types.NamespacedName, keys <-chan types.NamespacedName) {
	t.Helper()
	select {
	case key := <-keys:
		if key != want {
			t.Fatalf("key %s came, want %s", key, want)
		}
	case <-time.After(patience):
		t.Fatal("a restart or a stop woke nobody")
	}
}

// A controller runs although the JobSets that it listens to are hidden.
func TestJobSetEventsOfAWorkerThatHidesThem(t *testing.T) {
	s := newScene(t, setting{})
	s.hideJobSets(t)
	box := &inbox.Inbox{}
	keys := s.listen(t, box)
	box.Add(s.key)
	select {
	case <-keys:
	case <-time.After(patience):
		t.Error("the controller waits for JobSets")
	}
}

// listen runs a controller of the connection's JobSets, and of what comes through boxes, until the test ends.
func (s *scene) listen(t *testing.T, boxes ...*inbox.Inbox) <-chan types.NamespacedName {
	t.Helper()
	keys := make(chan types.NamespacedName, 100)
	c, err := controller.NewUnmanaged("listener", controller.Options{
		SkipNameValidation: ptr.To(true),
		Reconciler: reconcile.Func(func(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
			if request.Namespace == s.key.Namespace { // The tests share the worker.
				keys <- request.NamespacedName
			}
			return reconcile.Result{}, nil
		}),
	})
	must(t, err)
	must(t, c.Watch(mirror.JobSetEvents(s.worker.Connection.Cache())))
	for _, box := range boxes {
		must(t, c.Watch(box.Source()))
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
	})
	return keys
}
