// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/test/check"
)

// healthWindow is how long a trouble or its end is shown at least.
const healthWindow = 30 * time.Second

var pullFailed = trainjobs.Trouble{Reason: "ImagePullFailed", Message: "pod job-node-0-0: image registry.invalid/llm: not found"}

// newSickScene is a job that is known to be copied, on a worker with an agent.
func newSickScene(t *testing.T) (*scene, *events.FakeRecorder) {
	t.Helper()
	s, recorder := newScene(t, setting{}), events.NewFakeRecorder(10)
	s.challenge, s.options.Recorder = "1.1", recorder
	s.restart()
	s.run(t)
	return s, recorder
}

// stall makes the agent say a trouble, or that there is none.
func (s *scene) stall(t *testing.T, trouble *trainjobs.Trouble) {
	t.Helper()
	s.edit(t, func(copy *unstructured.Unstructured) {
		annotations := copy.GetAnnotations()
		delete(annotations, v1alpha1.AnnotationStalled)
		if trouble != nil {
			annotations[v1alpha1.AnnotationStalled] = trouble.String()
		}
		copy.SetAnnotations(annotations)
	})
}

// gathered reconciles twice, so that a change is seen and then shown.
func (s *scene) gathered(t *testing.T) {
	t.Helper()
	s.reconcile(t)
	s.Clock.Step(statusWindow)
	s.reconcile(t)
}

func (s *scene) expectHealth(t *testing.T, when string, status metav1.ConditionStatus, reason, words string) {
	t.Helper()
	d := s.dispatch(t)
	healthy := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchHealthy)
	if healthy == nil {
		t.Fatalf("%s: the Dispatch has no condition Healthy: %+v", when, d.Status)
	}
	if healthy.Status != status || healthy.Reason != reason || !strings.Contains(healthy.Message, words) {
		t.Errorf("%s: the Dispatch says %+v, want %s/%s with %q", when, healthy, status, reason, words)
	}
	want := v1alpha1.ReasonCopied
	if status == metav1.ConditionFalse {
		want = reason
	}
	check.Equal(t, want, d.Status.Reason, "%s: the phase %s has the reason", when, d.Status.Phase)
}

// What the worker's agent says is on the Dispatch in its words, and on the TrainJob once. A trouble that comes and goes
// is not worth a write each time.
func TestHealthIsTheWorkers(t *testing.T) {
	s, recorder := newSickScene(t)
	s.stall(t, &pullFailed)
	s.expectQuiet(t, "changes are gathered")
	s.gathered(t)
	s.expectHealth(t, "at first", metav1.ConditionFalse, "ImagePullFailed", `on worker "worker": pod job-node-0-0: image registry.invalid`)
	s.expectEvent(t, recorder, "Warning ImagePullFailed On worker worker: "+pullFailed.Message)
	s.Clock.Step(time.Second)
	s.expectQuiet(t, "it is said")

	for range 3 { // The trouble comes and goes.
		s.stall(t, nil)
		if result := s.expectQuiet(t, "a trouble is shown for a while"); result.RequeueAfter <= 0 || result.RequeueAfter > healthWindow {
			t.Errorf("its end is due after %s, want at most %s", result.RequeueAfter, healthWindow)
		}
		s.Clock.Step(2 * time.Second)
		s.stall(t, &pullFailed)
		s.expectQuiet(t, "the same trouble again")
	}
	s.restart()
	s.Clock.Step(runningDelay)
	s.expectQuiet(t, "another process knows the same")
	if len(recorder.Events) > 0 {
		t.Errorf("one more Event: %s", <-recorder.Events)
	}

	s.stall(t, nil)
	s.Clock.Step(healthWindow)
	s.gathered(t)
	s.expectHealth(t, "at the end", metav1.ConditionTrue, v1alpha1.ReasonRecovered, "no trouble")
	s.expectEvent(t, recorder, "Normal Recovered On worker worker: no trouble of the copy is known any more")
	s.Clock.Step(time.Hour)
	s.expectQuiet(t, "the copy is well")
}

// Words that are not the agent's say nothing.
func TestHealthOfAForgedMark(t *testing.T) {
	s, _ := newSickScene(t)
	for _, value := range []string{"it is\nbroken: really", "Long: " + strings.Repeat("x", 64<<10), ": ", "x"} {
		s.edit(t, func(copy *unstructured.Unstructured) {
			annotations := copy.GetAnnotations()
			annotations[v1alpha1.AnnotationStalled] = value
			copy.SetAnnotations(annotations)
		})
		s.Clock.Step(time.Minute)
		s.expectQuiet(t, "it is not what an agent writes")
	}
}

// While its worker is lost, a job does not count as healthy. The next attempt begins without the condition.
func TestHealthIsNotStale(t *testing.T) {
	s, _ := newSickScene(t)
	s.stall(t, &pullFailed)
	s.gathered(t)
	d := s.dispatch(t)
	record.SetWorkerLost(&d.Status, d, v1alpha1.ReasonHold, "it does not answer", s.Clock.Now())
	healthy := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchHealthy)
	if healthy.Status != metav1.ConditionUnknown || !strings.Contains(healthy.Message, "registry.invalid") {
		t.Errorf("a lost worker leaves %+v, want Unknown with its last words", healthy)
	}
	must(t, s.Hub.Admin.Status().Update(t.Context(), d))
	s.reconcile(t) // The worker answers.
	s.gathered(t)
	s.expectHealth(t, "when the worker is back", metav1.ConditionFalse, "ImagePullFailed", "registry.invalid")

	d = s.dispatch(t)
	record.End(&d.Status, d, v1alpha1.OutcomeAdmissionTimeout, "moved", s.Clock.Now())
	check.Equal(t, nil, meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchHealthy),
		"the next attempt begins with")
}

// podsReader counts the lists of pods, and refuses them, or the lists of Events, if it is told to.
type podsReader struct {
	client.Reader
	lists                int
	refuse, refuseEvents bool
}

func (r *podsReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, ok := list.(*corev1.PodList); ok {
		if r.lists++; r.refuse {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)
		}
	}
	if _, ok := list.(*corev1.EventList); ok && r.refuseEvents {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", nil)
	}
	return r.Reader.List(ctx, list, options...)
}

// newSceneWithoutAgent is a job on a worker without an agent, whose pods are read through the reader.
func newSceneWithoutAgent(t *testing.T) (*scene, *podsReader) {
	t.Helper()
	s := newScene(t, setting{})
	cached, err := s.worker.Connection.Client()
	must(t, err)
	reader := &podsReader{Reader: s.worker.Admin}
	s.options.Worker = stuckWorker{cached: cached, live: reader}
	s.restart()
	s.run(t)
	return s, reader
}

// podWithoutImage creates a pod of the job that cannot get its image.
func (s *scene) podWithoutImage(t *testing.T) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.key.Namespace, Name: "job-node-0-0-x", Labels: map[string]string{
				jobsetv1alpha2.JobSetNameKey: s.key.Name, jobsetv1alpha2.ReplicatedJobNameKey: "node", jobsetv1alpha2.JobIndexKey: "0",
			},
		},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(false),
			Containers:                   []corev1.Container{{Name: "node", Image: "registry.invalid/llm"}},
		},
	}
	must(t, s.worker.Admin.Create(t.Context(), pod))
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodPending,
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "node", Image: "registry.invalid/llm", State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such host"},
			},
		}},
	}
	must(t, s.worker.Admin.Status().Update(t.Context(), pod))
	return pod
}

// Without an agent the hub reads the pods of a copy that does not run, with a back-off, and of no other copy.
func TestHealthWithoutAgent(t *testing.T) {
	s, reader := newSceneWithoutAgent(t)
	s.podWithoutImage(t)
	if result := s.expectQuiet(t, "it may just be starting"); result.RequeueAfter <= 0 || result.RequeueAfter > time.Minute {
		t.Errorf("the pods are due after %s, want at most a minute", result.RequeueAfter)
	}
	check.Equal(t, 0, reader.lists, "how often the pods of a young copy were read")
	s.Clock.Step(time.Minute)
	s.gathered(t)
	s.expectHealth(t, "after a minute", metav1.ConditionFalse, "ImagePullFailed", "no such host")
	for range 20 {
		s.Clock.Step(time.Minute)
		s.expectQuiet(t, "it is as before")
	}
	if reader.lists < 4 || reader.lists > 8 {
		t.Errorf("the pods were read %d times in 20 minutes, want at most each 5 minutes after some", reader.lists)
	}
	s.trains(t, "ready", "")
	s.gathered(t)
	s.gathered(t)
	s.expectHealth(t, "when it runs", metav1.ConditionTrue, v1alpha1.ReasonRecovered, "")
	before := reader.lists
	s.Clock.Step(time.Hour)
	s.expectQuiet(t, "it runs")
	check.Equal(t, before, reader.lists, "the pods of a copy that runs are read")
}

// Where no pod exists, the worker's Events say why, if the hub may read them.
func TestHealthOfACopyWithoutPods(t *testing.T) {
	s, reader := newSceneWithoutAgent(t)
	jobSet := s.jobSet(t, 0, "")
	jobSet.Object["status"] = map[string]any{"restarts": int64(0), "replicatedJobsStatus": []any{map[string]any{
		"name": "node", "ready": int64(0), "succeeded": int64(0), "failed": int64(0), "active": int64(0), "suspended": int64(0),
	}}}
	must(t, s.worker.Admin.Status().Update(t.Context(), jobSet))
	must(t, s.worker.Admin.Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: s.key.Namespace, Name: "refused"},
		InvolvedObject: corev1.ObjectReference{Kind: "Job", Namespace: s.key.Namespace, Name: s.key.Name + "-node-0"},
		Type:           corev1.EventTypeWarning, Reason: "FailedCreate", LastTimestamp: jobSet.GetCreationTimestamp(),
		Message: `Error creating: pods "job-node-0-0-x" is forbidden: exceeded quota: no-pods`,
	}))
	reader.refuseEvents = true
	s.reconcile(t)
	s.Clock.Step(time.Minute)
	s.expectQuiet(t, "it may just be starting")
	s.Clock.Step(20 * time.Minute)
	s.gathered(t)
	s.expectHealth(t, "without the right to read Events", metav1.ConditionFalse, "NoPodReady", "no pod exists")
	reader.refuseEvents = false
	s.Clock.Step(10 * time.Minute)
	s.gathered(t)
	s.expectHealth(t, "with the right", metav1.ConditionFalse, "NoPodReady", "no pod exists; FailedCreate: exceeded quota: no-pods")
}

// If the hub may not list pods, Healthy is Unknown.
func TestHealthIsHidden(t *testing.T) {
	s, reader := newSceneWithoutAgent(t)
	reader.refuse = true
	s.reconcile(t)
	s.Clock.Step(time.Minute)
	s.gathered(t)
	s.expectHealth(t, "without the right", metav1.ConditionUnknown, v1alpha1.ReasonNotVisible, "may not list pods there")
	reader.refuse = false
	s.podWithoutImage(t)
	s.Clock.Step(10 * time.Minute)
	s.gathered(t)
	s.expectHealth(t, "with the right", metav1.ConditionFalse, "ImagePullFailed", "no such host")
}

// The phase says whether a step runs.
func TestPhases(t *testing.T) {
	before := starts(t)
	s, _ := newSickScene(t)
	for _, step := range []struct {
		counter string
		want    v1alpha1.DispatchPhase
	}{{"", v1alpha1.PhaseStarting}, {"ready", v1alpha1.PhaseRunning}, {"", v1alpha1.PhaseRestarting}, {"ready", v1alpha1.PhaseRunning}} {
		s.trains(t, step.counter, "")
		s.gathered(t)
		check.Equal(t, step.want, s.dispatch(t).Status.Phase, "with counter %q the phase", step.counter)
	}
	check.Equal(t, 1, starts(t)-before, "starts that were measured")
}

// starts is how many starts of copies this process has measured.
func starts(t *testing.T) uint64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	must(t, err)
	for _, family := range families {
		if family.GetName() == "trainyard_time_to_start_seconds" {
			return family.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	t.Fatal("there is no such metric")
	return 0
}
