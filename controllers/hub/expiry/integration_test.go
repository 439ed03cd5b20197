// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/expiry/archive"
	"github.com/trainyard/trainyard/test/check"
)

// TestDeletion walks finished jobs through their time. The manager has no more rights than config/rbac gives.
func TestDeletion(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		job    func(*trainer.TrainJob)
		policy *int32
		// stays is how many seconds after its end the job is still there. Negative: for ever.
		stays int
	}{
		"Nothing":      {reason: "Deletion is opt-in.", stays: -1},
		"Annotation":   {reason: "The user says it.", job: ttl("60"), stays: 60},
		"Policy":       {reason: "The admin says it.", policy: new(int32(60)), stays: 60},
		"Longer":       {reason: "The annotation counts before the policy.", job: ttl("60"), policy: new(int32(0)), stays: 60},
		"Shorter":      {reason: "The annotation counts before the policy.", job: ttl("0"), policy: new(int32(60)), stays: 0},
		"Zero":         {reason: "Zero is a time too.", policy: new(int32(0)), stays: 0},
		"Invalid":      {reason: "A typing error deletes nothing, by no policy.", job: ttl("1h"), policy: new(int32(0)), stays: -1},
		"Negative":     {reason: "A negative time deletes nothing.", job: ttl("-1"), policy: new(int32(0)), stays: -1},
		"Overflowing":  {reason: "The sum of times must not wrap around.", job: ttl("9223372036854775807"), stays: -1},
		"NotOurs":      {reason: "Jobs of other managers are left alone.", job: builtIn, policy: new(int32(0)), stays: -1},
		"NotOursAsked": {reason: "Whoever runs the job deletes it.", job: both(builtIn, ttl("0")), stays: -1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			if test.policy != nil {
				s.policy(test.policy)
			}
			change := func(*trainer.TrainJob) {}
			if test.job != nil {
				change = test.job
			}
			s.ended("job", change)
			if test.stays < 0 {
				if again := s.pass("job"); again != 0 {
					t.Errorf("the job is looked at again after %s: %s", again, test.reason)
				}
				s.clock.SetTime(s.clock.Now().Add(1000 * time.Hour))
				s.pass("job")
				s.wantThere("job", true, test.reason)
				return
			}
			if test.stays > 0 {
				if again := s.pass("job"); again != time.Duration(test.stays)*time.Second {
					t.Errorf("the job is looked at again after %s, want %d s: %s", again, test.stays, test.reason)
				}
				s.clock.SetTime(s.clock.Now().Add(time.Duration(test.stays)*time.Second - time.Millisecond))
				s.pass("job")
				s.wantThere("job", true, test.reason)
				s.clock.SetTime(s.clock.Now().Add(time.Millisecond))
			}
			s.pass("job")
			s.wantThere("job", false, test.reason)
		})
	}
}

// TestRightToDelete: whoever has the manager's credentials cannot delete TrainJobs that run, or that the hub runs
// itself.
func TestRightToDelete(t *testing.T) {
	s := newScene(t)
	manager, err := client.New(s.account, client.Options{Scheme: s.scheme})
	check.Must(t, err)
	s.submit("runs")
	s.ended("local", builtIn)
	s.ended("ended")
	for name, words := range map[string]string{
		"runs":  "the manager of Trainyard may not delete a TrainJob that has not ended",
		"local": "the manager of Trainyard may not delete a TrainJob that the hub runs itself",
		"ended": "",
	} {
		check.Eventually(t, "the API server to know the policy", func(g gomega.Gomega) {
			job := &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
			err := manager.Delete(t.Context(), job, client.DryRunAll)
			if words == "" {
				g.Expect(err).NotTo(gomega.HaveOccurred())
				return
			}
			g.Expect(err).To(gomega.MatchError(gomega.ContainSubstring(words)))
		})
	}
	if err := manager.DeleteAllOf(t.Context(), &trainer.TrainJob{}, client.InNamespace(s.namespace)); err == nil {
		t.Error("the manager may delete a whole collection")
	}
	s.wantThere("runs", true, "it has not ended")
}

func builtIn(job *trainer.TrainJob) { job.Spec.ManagedBy = new(v1alpha1.ManagedByBuiltIn) }

func both(a, b func(*trainer.TrainJob)) func(*trainer.TrainJob) {
	return func(job *trainer.TrainJob) {
		a(job)
		b(job)
	}
}

// TestLongTime: a job with a time of years is looked at once a day, so that the queue forgets it when somebody deletes
// it.
func TestLongTime(t *testing.T) {
	s := newScene(t)
	s.ended("job", ttl("4294967296"))
	if again := s.pass("job"); again != 24*time.Hour {
		t.Errorf("the job is looked at again after %s, want a day", again)
	}
	s.clock.SetTime(s.clock.Now().Add(100 * 365 * 24 * time.Hour))
	s.pass("job")
	s.wantThere("job", true, "its time is 136 years")
	s.clock.SetTime(s.clock.Now().Add(40 * 365 * 24 * time.Hour))
	s.pass("job")
	s.wantThere("job", false, "its time is over")
}

// TestUnfinishedJobStays: only the manager's record says that a job has ended. A user who writes the TrainJob's status
// does not end it.
func TestUnfinishedJobStays(t *testing.T) {
	s := newScene(t)
	s.policy(new(int32(0)))
	s.submit("runs", ttl("0"))
	s.submit("pretends", ttl("0"))
	job := &trainer.TrainJob{}
	check.Must(t, s.hub.Admin.Get(t.Context(), s.key("pretends"), job))
	job.Status.Conditions = []metav1.Condition{{
		Type: trainer.TrainJobComplete, Status: metav1.ConditionTrue, Reason: "X", LastTransitionTime: metav1.Unix(0, 0),
	}}
	check.Must(t, s.hub.Admin.Status().Update(t.Context(), job))
	for _, name := range []string{"runs", "pretends"} {
		s.pass(name)
		s.wantThere(name, true, "its Dispatch is not Finished")
	}
}

// TestInvalidAnnotation: the Event has the name of the annotation, the value, and what would be right. It comes when
// the user writes the annotation and when the job ends, and not with each start of a manager.
func TestInvalidAnnotation(t *testing.T) {
	s := newScene(t)
	s.start(true)
	s.ended("first", ttl("0"))
	s.awaitGone("first") // The manager works.
	const job = "job"
	want := `job InvalidTTL: The annotation trainyard.dev/ttl-seconds-after-finished is "1h": it must be a number of ` +
		`seconds: an integer from 0 to 4294967296. The job stays until somebody deletes it`
	await := func(when, event string, times int) {
		t.Helper()
		check.Eventually(t, "the Event "+when, func(g gomega.Gomega) {
			told := s.told.about(job)
			g.Expect(len(told)).To(gomega.BeNumerically(">=", times), "%q", told)
			g.Expect(told).To(gomega.ContainElement(event))
		})
	}
	s.submit(job, ttl("1h"))
	await("before the end", want, 1)
	s.clock.SetTime(time.Now().Add(2 * time.Second)) // After the start of the manager.
	s.finish(job)
	await("at the end", want, 2)
	s.annotate(job, "2h")
	await("after the end", strings.ReplaceAll(want, `"1h"`, `"2h"`), 3)
	s.clock.SetTime(time.Now().Add(-time.Minute))
	s.submit("old", ttl("1h"))
	s.finish("old")
	s.start(true)
	before := len(s.told.about("old"))
	s.ended("last", ttl("0"))
	s.awaitGone("last")
	s.annotate(job, "0") // The user repairs it.
	s.annotate("old", "0")
	s.awaitGone(job)
	s.awaitGone("old")
	if told := s.told.about("old"); len(told) != before {
		t.Errorf("Events: %q, want none after the start of another manager", told)
	}
}

// annotate changes the annotation of a job.
func (s *scene) annotate(name, value string) {
	s.Helper()
	patch := client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+v1alpha1.AnnotationTTL+`":"`+value+`"}}}`))
	job := &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	check.Must(s, s.hub.Admin.Patch(s.Context(), job, patch))
}

// TestOnlyTheJobThatWasLookedAt: a deletion that was decided for one job does not hit a job that has changed since, or
// another job of the same name. The caches of a stopped process show what was.
func TestOnlyTheJobThatWasLookedAt(t *testing.T) {
	for name, change := range map[string]func(*scene){
		"Changed": func(s *scene) { s.annotate("job", "3600") },
		"CreatedAgain": func(s *scene) {
			check.Must(s, s.hub.Admin.Delete(s.Context(), &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "job"}}))
			check.Must(s, s.hub.Admin.Delete(s.Context(), check.Dispatch(s, s.hub.Admin, s.key("job"))))
			s.submit("job")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.ended("job", ttl("0"))
			s.sync()
			s.stop()
			change(s)
			result, err := s.reconciler.Reconcile(t.Context(), request(s.key("job")))
			if err != nil || result.RequeueAfter == 0 {
				t.Errorf("Reconcile() = %v, %v, want another pass", result, err)
			}
			s.wantThere("job", true, "it is not the job that was looked at")
		})
	}
}

// TestDispatchOfAnotherJob: the record of a job that is gone says nothing about its successor.
func TestDispatchOfAnotherJob(t *testing.T) {
	s := newScene(t)
	s.ended("job", ttl("0"))
	check.Must(t, s.hub.Admin.Delete(t.Context(), &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "job"}}))
	successor := &trainer.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "job", Annotations: map[string]string{v1alpha1.AnnotationTTL: "0"}},
		Spec: trainer.TrainJobSpec{
			ManagedBy: new(v1alpha1.ManagedByMultiKueue), RuntimeRef: trainer.RuntimeRef{Name: "torch-distributed"},
		},
	}
	s.create(successor)
	s.pass("job")
	s.wantThere("job", true, "the finished Dispatch is of its predecessor")
}

// TestKeptByFinalizer: a job that somebody keeps is deleted once.
func TestKeptByFinalizer(t *testing.T) {
	s := newScene(t)
	s.ended("job", ttl("0"), func(job *trainer.TrainJob) { job.Finalizers = []string{"example.com/keep"} })
	s.pass("job")
	before := check.TrainJob(t, s.hub.Admin, s.key("job"))
	if before == nil || before.GetDeletionTimestamp() == nil {
		t.Fatalf("the job is %v, want it to be there and to be deleted", before)
	}
	if again := s.pass("job"); again != 0 {
		t.Errorf("the job is looked at again after %s", again)
	}
}

// TestWatches runs the controller: each of these events alone is enough for the deletion of a job. A canary that must
// stay shows that nothing else is deleted.
func TestWatches(t *testing.T) {
	for name, test := range map[string]struct {
		job    func(*trainer.TrainJob)
		policy *int32
		// change happens when the job has finished and was looked at. Nil: the time alone.
		change func(s *scene)
	}{
		"Time":      {job: ttl("2")},
		"Annotated": {change: func(s *scene) { s.annotate("job", "0") }},
		"Shortened": {job: ttl("3600"), change: func(s *scene) { s.annotate("job", "1") }},
		"Labelled": {policy: new(int32(0)), job: func(job *trainer.TrainJob) { job.Labels = map[string]string{"keep": "yes"} }, change: func(s *scene) {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"keep":null}}}`))
			check.Must(s, s.hub.Admin.Patch(s.Context(), &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "job"}}, patch))
		}},
		"PolicyCreated": {change: func(s *scene) { s.policy(new(int32(0))) }},
		"PolicyShortened": {policy: new(int32(3600)), change: func(s *scene) {
			s.changePolicy(func(spec *v1alpha1.DispatchPolicySpec) { spec.TTLSecondsAfterFinished = new(int32(0)) })
		}},
		"NamespaceLabelled": {change: func(s *scene) {
			s.policy(new(int32(0)))
			s.changePolicy(func(spec *v1alpha1.DispatchPolicySpec) {
				spec.Jobs.NamespaceSelector.MatchLabels = map[string]string{"team": s.namespace}
			})
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"`+s.namespace+`"}}}`))
			check.Must(s, s.hub.Admin.Patch(s.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}, patch))
		}},
		"Restart": {job: ttl("0"), change: func(s *scene) { s.start(true) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			if test.policy != nil {
				s.policy(test.policy)
				if test.job != nil {
					s.changePolicy(func(spec *v1alpha1.DispatchPolicySpec) {
						spec.Jobs.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
							{Key: "keep", Operator: metav1.LabelSelectorOpDoesNotExist},
						}}
					})
				}
			}
			if name != "Restart" {
				s.start(true)
			}
			s.ended("canary", ttl("86400"))
			change := func(*trainer.TrainJob) {}
			if test.job != nil {
				change = test.job
			}
			s.ended("job", change)
			s.sync()
			if test.change != nil {
				s.wantThere("job", true, "nothing has happened yet")
				test.change(s)
			}
			s.awaitGone("job")
			s.wantThere("canary", true, "its annotation has another time")
		})
	}
}

func (s *scene) changePolicy(change func(*v1alpha1.DispatchPolicySpec)) {
	s.Helper()
	policy := &v1alpha1.DispatchPolicy{}
	check.Must(s, s.hub.Admin.Get(s.Context(), client.ObjectKey{Name: s.namespace}, policy))
	change(&policy.Spec)
	check.Must(s, s.hub.Admin.Update(s.Context(), policy))
}

// TestRefusedDeletion: somebody forbids the deletion. The job's owner hears of it, and the job is tried again, but not
// archived again.
func TestRefusedDeletion(t *testing.T) {
	s := newScene(t)
	written := 0
	s.options.Archive = archiver(func(context.Context, archive.Entry) error {
		written++
		return nil
	})
	s.start(false)
	s.ended("job", ttl("0"))
	s.sync()
	_, err := s.hub.Cluster.Kubectl(t.Context(), "patch", "clusterrole", "trainyard-manager", "--type=json",
		"-p", `[{"op":"test","path":"/rules/0/verbs","value":["delete"]},{"op":"remove","path":"/rules/0"}]`)
	check.Must(t, err)
	restore := sync.OnceFunc(func() {
		check.Must(t, s.hub.Cluster.ApplyFiles(context.Background(), "../../../config/rbac/cluster_role.yaml"))
	})
	t.Cleanup(restore)
	await := func(allowed bool) {
		t.Helper()
		check.Eventually(t, "the API server to know the role", func(g gomega.Gomega) {
			_, err := s.hub.Cluster.Kubectl(t.Context(), "auth", "can-i", "delete", "trainjobs.trainer.kubeflow.org",
				"--as", s.account.Impersonate.UserName)
			g.Expect(err == nil).To(gomega.Equal(allowed))
		})
	}
	await(false)
	for range 2 {
		if _, err := s.reconciler.Reconcile(t.Context(), request(s.key("job"))); err == nil {
			t.Error("Reconcile() has no error, so nobody tries again")
		}
	}
	s.wantThere("job", true, "the manager may not delete it")
	if told := strings.Join(s.told.about("job"), "\n"); !strings.Contains(told, "job ExpiryRefused: ") {
		t.Errorf("Events: %s, want ExpiryRefused", told)
	}
	restore()
	await(true)
	s.pass("job")
	s.wantThere("job", false, "the manager may delete it again")
	if written != 1 {
		t.Errorf("archived %d times, want once", written)
	}
}
