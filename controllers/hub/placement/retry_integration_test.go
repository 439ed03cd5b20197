// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"slices"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/laws"
	"github.com/trainyard/trainyard/test/stage"
)

// askAgain writes the annotation with which a user asks for a retry.
func (s *scene) askAgain(t *testing.T, name, value string) {
	t.Helper()
	job := s.TrainJob(t, name)
	before := job.DeepCopy()
	metav1.SetMetaDataAnnotation(&job.ObjectMeta, v1alpha1.AnnotationRetry, value)
	check.Must(t, s.Hub.Admin.Patch(t.Context(), job, client.MergeFrom(before)))
}

func (s *scene) suspendJob(t *testing.T, name string, suspend bool) {
	t.Helper()
	job := s.TrainJob(t, name)
	job.Spec.Suspend = new(suspend)
	check.Must(t, s.Hub.Admin.Update(t.Context(), job))
}

// refusedByAll has both workers refuse a job, by turns, and returns its Dispatch, which waits.
func (s *scene) refusedByAll(t *testing.T, name string) *v1alpha1.Dispatch {
	t.Helper()
	asked := map[v1alpha1.ClusterName]bool{}
	for range 2 {
		d, _ := s.reconcile(t, name)
		if d.Spec.Cluster == "" || asked[d.Spec.Cluster] {
			t.Fatalf("the job is on %q, want it on a worker that has not refused it: %v", d.Spec.Cluster, reasonsOf(d))
		}
		asked[d.Spec.Cluster] = true
		s.report(t, d, v1alpha1.DispatchMirrored, metav1.ConditionFalse, v1alpha1.OutcomeRejected)
	}
	d, _ := s.reconcile(t, name)
	if d.Spec.Cluster != "" || !record.WaitsFor(&d.Status, v1alpha1.ReasonRejected) {
		t.Fatalf("the job is on %q: %v", d.Spec.Cluster, reasonsOf(d))
	}
	return d
}

// A retry makes all refusals void at once, whatever the value of the annotation is. Within ten seconds of a retry the
// next one waits until they are over, and is not lost. Without another value nothing happens, also in a new process.
func TestRetry(t *testing.T) {
	s := newScene(t)
	s.Submit(t, "job")
	waiting := s.refusedByAll(t, "job")
	s.Events.Take()

	s.askAgain(t, "job", "please")
	d, _ := s.reconcile(t, "job") // It puts the retry on record.
	check.Must(t, laws.Check(waiting, d))
	if d.Spec.Cluster != "" || d.Annotations[annotationRetry] == "" {
		t.Fatalf("a worker is asked before the retry is on record: %v", d.Annotations)
	}
	if events := s.Events.Take(); !slices.ContainsFunc(events, func(event string) bool {
		return strings.Contains(event, "Workers that have refused the job are asked again: east, west")
	}) {
		t.Errorf("no Event says that workers are asked again: %q", events)
	}
	waiting = s.refusedByAll(t, "job") // Each of them was asked again.

	s.Clock.Step(4 * time.Second)
	s.askAgain(t, "job", "soon")
	s.askAgain(t, "job", "") // An empty value is one too.
	d, result := s.reconcile(t, "job")
	if d.ResourceVersion != waiting.ResourceVersion || result.RequeueAfter != 6*time.Second {
		t.Fatalf("4 s after a retry the Dispatch is written (%t), and the job is looked at again after %s, want 6s",
			d.ResourceVersion != waiting.ResourceVersion, result.RequeueAfter)
	}
	s.restart(t) // The time is on record.
	s.Clock.Step(5 * time.Second)
	if d, result = s.reconcile(t, "job"); d.ResourceVersion != waiting.ResourceVersion || result.RequeueAfter != time.Second {
		t.Fatalf("9 s after a retry the job is looked at again after %s, want 1s", result.RequeueAfter)
	}
	s.Clock.Step(time.Second)
	s.reconcile(t, "job")
	waiting = s.refusedByAll(t, "job")

	s.Clock.Step(11 * time.Second)
	s.restart(t)
	if d, _ = s.reconcile(t, "job"); d.Spec.Cluster != "" || d.Annotations[annotationRetry] != waiting.Annotations[annotationRetry] {
		t.Errorf("the same request is carried out twice: %v", d.Annotations)
	}
	job := s.TrainJob(t, "job")
	before := job.DeepCopy()
	delete(job.Annotations, v1alpha1.AnnotationRetry)
	check.Must(t, s.Hub.Admin.Patch(t.Context(), job, client.MergeFrom(before)))
	if d, _ = s.reconcile(t, "job"); d.Spec.Cluster != "" || d.Annotations[annotationRetry] != waiting.Annotations[annotationRetry] {
		t.Errorf("the removal of the annotation is a request: %v", d.Annotations)
	}
}

// The request for a retry is about the hub. It changes nothing of what was counted for the copy, and a TrainJob that is
// created with the annotation asks nothing.
func TestRetryOfOtherJobs(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		// before brings the job into its state, and after out of it.
		before, after func(t *testing.T, s *scene)
		edits         []func(*trainer.TrainJob)
		// wants is true if the request is carried out in the end.
		wants bool
	}{
		"NewJob": {
			reason: "no worker has refused it yet",
			edits: []func(*trainer.TrainJob){func(job *trainer.TrainJob) {
				job.Annotations = map[string]string{v1alpha1.AnnotationRetry: "from a manifest"}
			}},
			before: func(t *testing.T, s *scene) {
				t.Helper()
				s.refusedByAll(t, "job")
			},
		},
		"Placed": {
			reason: "it has a worker; when it waits again, those that have refused it are asked",
			before: func(t *testing.T, s *scene) {
				t.Helper()
				d, _ := s.reconcile(t, "job")
				counted := d.Spec.Counted.Digest
				s.askAgain(t, "job", "now")
				after, _ := s.reconcile(t, "job")
				if after.ResourceVersion != d.ResourceVersion || trainjobs.Digest(stage.ReadTrainJob(t, s.Hub.Admin, s.Key("job"))) != counted {
					t.Errorf("the request changes the Dispatch of a job that has a worker: %+v", after)
				}
			},
			after: func(t *testing.T, s *scene) {
				t.Helper()
				s.refusedByAll(t, "job")
				s.reconcile(t, "job")
			},
			wants: true,
		},
		"WaitsForRoom": {
			reason: "there is no refusal, and an Event says so",
			before: func(t *testing.T, s *scene) {
				t.Helper()
				s.worker(t, east, cordon)
				s.worker(t, west, cordon)
				s.expect(t, "job", v1alpha1.ReasonNoFit)
				s.Events.Take()
				s.askAgain(t, "job", "now")
			},
			after: func(t *testing.T, s *scene) {
				t.Helper()
				s.expect(t, "job", v1alpha1.ReasonNoFit)
				if events := s.Events.Take(); len(events) != 1 || !strings.Contains(events[0], "No worker has refused the job") {
					t.Errorf("Events are %q", events)
				}
			},
			wants: true,
		},
		"Suspended": {
			reason: "it does not wait for a worker; when it is resumed, all workers are asked",
			before: func(t *testing.T, s *scene) {
				t.Helper()
				s.refusedByAll(t, "job")
				s.suspendJob(t, "job", true)
				s.askAgain(t, "job", "now")
				if d, _ := s.reconcile(t, "job"); !record.WaitsFor(&d.Status, v1alpha1.ReasonSuspended) || d.Annotations[annotationRetry] != "" {
					t.Errorf("the Dispatch says %v", d.Status)
				}
			},
			after: func(t *testing.T, s *scene) {
				t.Helper()
				s.suspendJob(t, "job", false)
				s.reconcile(t, "job")
				s.reconcile(t, "job")
			},
			wants: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.Submit(t, "job", test.edits...)
			test.before(t, s)
			if test.after != nil {
				test.after(t, s)
			}
			d, _ := s.reconcile(t, "job")
			if got := !retryOf(d).at.IsZero(); got != test.wants {
				t.Errorf("%s: the request is carried out: %t, want %t", test.reason, got, test.wants)
			}
		})
	}
}

// A worker that refuses the pods of a job before it gets a copy is asked again too, once for all jobs of the kind.
func TestRetryAsksAboutPods(t *testing.T) {
	s, trials := newPodsScene(t)
	s.Submit(t, "job")
	s.Submit(t, "like-it")
	for range 2 {
		s.reconcile(t, "job")
		trials.ofPods(t, 1)[0].answer(trainjobs.Admission{Refused: "no such service account"})
	}
	s.expect(t, "job", v1alpha1.ReasonRejected)
	s.expect(t, "like-it", v1alpha1.ReasonRejected)
	trials.ofPods(t, 0)
	s.Clock.Step(retryInterval)
	for _, name := range []string{"job", "like-it"} {
		s.askAgain(t, name, "now")
		s.reconcile(t, name)
	}
	s.reconcile(t, "job")
	again := trials.ofPods(t, 1)[0]
	s.askAgain(t, "like-it", "at once")
	s.reconcile(t, "like-it") // It has room on the same worker, and waits for the answer.
	trials.ofPods(t, 0)
	again.admits()
	if d, _ := s.reconcile(t, "job"); d.Spec.Cluster != again.worker {
		t.Errorf("the job is on %q, want %q, which takes it now", d.Spec.Cluster, again.worker)
	}
}

// Attack: a job that no worker accepts stops nobody, however often its owner asks for a retry.
func TestRetryStopsNobody(t *testing.T) {
	s, trials := newTrialScene(t)
	s.Submit(t, "high", s.priorityClass(t, 100))
	refuse := func() {
		t.Helper()
		for range 2 {
			s.expect(t, "high", v1alpha1.ReasonNoFit)
			trials.next(t).answer("admission webhook says no")
		}
		s.victims(t, s.expect(t, "high", v1alpha1.ReasonNoFit), 0)
		trials.silent(t, "though all have refused")
	}
	refuse()
	for _, request := range []string{"a", "b"} {
		s.askAgain(t, "high", request)
		s.reconcile(t, "high")
		refuse() // The retry has each worker asked again.
		s.askAgain(t, "high", request+" at once")
		s.reconcile(t, "high")
		s.expect(t, "high", v1alpha1.ReasonNoFit)
		trials.silent(t, "twice within ten seconds")
		s.Clock.Step(retryInterval)
	}
}

// Attack: dry runs pass, and workers refuse the copy after all. A retry does not shorten the back-off of preemptions.
func TestRetryDoesNotShortenTheBackOffOfPreemptions(t *testing.T) {
	s, trials := newTrialScene(t)
	s.Submit(t, "high", s.priorityClass(t, 100))
	s.expect(t, "high", v1alpha1.ReasonNoFit)
	trials.next(t).answer("")
	victim := s.victims(t, s.expect(t, "high", v1alpha1.ReasonPreempting), 1)[0]
	s.endsAttempt(t, victim, v1alpha1.OutcomePreempted)
	high, _ := s.reconcile(t, "high")
	s.report(t, high, v1alpha1.DispatchMirrored, metav1.ConditionFalse, v1alpha1.OutcomeRejected)
	if back, _ := s.reconcile(t, victim.Name); back.Spec.Cluster == "" {
		t.Fatalf("%s has not come back: %v", victim.Name, reasonsOf(back))
	}
	s.expect(t, "high", v1alpha1.ReasonNoFit)
	for _, request := range []string{"a", "b", "c"} {
		s.askAgain(t, "high", request)
		s.reconcile(t, "high")
		s.expect(t, "high", v1alpha1.ReasonNoFit)
		trials.silent(t, "for a job that backs off")
		s.Clock.Step(retryInterval)
	}
	s.Clock.Step(record.MinBackoff - 3*retryInterval)
	s.expect(t, "high", v1alpha1.ReasonNoFit)
	if len(trials.asked) == 0 {
		t.Error("no worker is asked after the back-off")
	}
}
