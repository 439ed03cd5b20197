// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/expiry/archive"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
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
				s.policy(t, test.policy)
			}
			change := func(*trainer.TrainJob) {}
			if test.job != nil {
				change = test.job
			}
			s.ended(t, "job", change)
			if test.stays < 0 {
				check.Equal(t, 0, s.pass(t, "job"), "the job is looked at again after: %s", test.reason)
				s.Clock.SetTime(s.Clock.Now().Add(1000 * time.Hour))
				s.pass(t, "job")
				s.wantThere(t, "job", true, test.reason)
				return
			}
			if test.stays > 0 {
				check.Equal(t, time.Duration(test.stays)*time.Second, s.pass(t, "job"),
					"the job is looked at again after %d s: %s", test.stays, test.reason)
				s.Clock.SetTime(s.Clock.Now().Add(time.Duration(test.stays)*time.Second - time.Millisecond))
				s.pass(t, "job")
				s.wantThere(t, "job", true, test.reason)
				s.Clock.SetTime(s.Clock.Now().Add(time.Millisecond))
			}
			s.pass(t, "job")
			s.wantThere(t, "job", false, test.reason)
		})
	}
}

// TestRightToDelete: whoever has the manager's credentials cannot delete TrainJobs that run, or that the hub runs
// itself.
func TestRightToDelete(t *testing.T) {
	s := newScene(t)
	manager, err := client.New(s.ManagerAccount(), client.Options{Scheme: s.Scheme})
	check.Must(t, err)
	s.submit(t, "runs")
	s.ended(t, "local", builtIn)
	s.ended(t, "ended")
	for name, words := range map[string]string{
		"runs":  "the manager of Trainyard may not delete a TrainJob that has not ended",
		"local": "the manager of Trainyard may not delete a TrainJob that the hub runs itself",
		"ended": "",
	} {
		check.Eventually(t, "the API server to know the policy", func(g gomega.Gomega) {
			job := &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}
			err := manager.Delete(t.Context(), job, client.DryRunAll)
			if words == "" {
				g.Expect(err).NotTo(gomega.HaveOccurred())
				return
			}
			g.Expect(err).To(gomega.MatchError(gomega.ContainSubstring(words)))
		})
	}
	if err := manager.DeleteAllOf(t.Context(), &trainer.TrainJob{}, client.InNamespace(s.Namespace)); err == nil {
		t.Error("the manager may delete a whole collection")
	}
	s.wantThere(t, "runs", true, "it has not ended")
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
	s.ended(t, "job", ttl("4294967296"))
	check.Equal(t, 24*time.Hour, s.pass(t, "job"), "the job is looked at again after")
	s.Clock.SetTime(s.Clock.Now().Add(100 * 365 * 24 * time.Hour))
	s.pass(t, "job")
	s.wantThere(t, "job", true, "its time is 136 years")
	s.Clock.SetTime(s.Clock.Now().Add(40 * 365 * 24 * time.Hour))
	s.pass(t, "job")
	s.wantThere(t, "job", false, "its time is over")
}

// TestUnfinishedJobStays: only the manager's record says that a job has ended. A user who writes the TrainJob's status
// does not end it.
func TestUnfinishedJobStays(t *testing.T) {
	s := newScene(t)
	s.policy(t, new(int32(0)))
	s.submit(t, "runs", ttl("0"))
	s.submit(t, "pretends", ttl("0"))
	job := s.TrainJob(t, "pretends")
	job.Status.Conditions = []metav1.Condition{{
		Type: trainer.TrainJobComplete, Status: metav1.ConditionTrue, Reason: "X", LastTransitionTime: metav1.Unix(0, 0),
	}}
	check.Must(t, s.Hub.Admin.Status().Update(t.Context(), job))
	for _, name := range []string{"runs", "pretends"} {
		s.pass(t, name)
		s.wantThere(t, name, true, "its Dispatch is not Finished")
	}
}

// TestInvalidAnnotation: the Event has the name of the annotation, the value, and what would be right. It comes when
// the user writes the annotation and when the job ends, and not with each start of a manager.
func TestInvalidAnnotation(t *testing.T) {
	s := newScene(t)
	s.start(t, true)
	s.ended(t, "first", ttl("0"))
	s.awaitGone(t, "first") // The manager works.
	const job = "job"
	want := `Warning InvalidTTL The annotation trainyard.dev/ttl-seconds-after-finished is "1h": it must be a number of ` +
		`seconds: an integer from 0 to 4294967296. The job stays until somebody deletes it`
	await := func(when, event string, times int) {
		t.Helper()
		check.Eventually(t, "the Event "+when, func(g gomega.Gomega) {
			told := s.Events.About(job)
			g.Expect(len(told)).To(gomega.BeNumerically(">=", times), "%q", told)
			g.Expect(told).To(gomega.ContainElement(event))
		})
	}
	s.submit(t, job, ttl("1h"))
	await("before the end", want, 1)
	s.Clock.SetTime(time.Now().Add(2 * time.Second)) // After the start of the manager.
	s.finish(t, job)
	await("at the end", want, 2)
	s.annotate(t, job, "2h")
	await("after the end", strings.ReplaceAll(want, `"1h"`, `"2h"`), 3)
	s.Clock.SetTime(time.Now().Add(-time.Minute))
	s.submit(t, "old", ttl("1h"))
	s.finish(t, "old")
	s.start(t, true)
	before := len(s.Events.About("old"))
	s.ended(t, "last", ttl("0"))
	s.awaitGone(t, "last")
	s.annotate(t, job, "0") // The user repairs it.
	s.annotate(t, "old", "0")
	s.awaitGone(t, job)
	s.awaitGone(t, "old")
	if told := s.Events.About("old"); len(told) != before {
		t.Errorf("Events: %q, want none after the start of another manager", told)
	}
}

// annotate changes the annotation of a job.
func (s *scene) annotate(t *testing.T, name, value string) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+v1alpha1.AnnotationTTL+`":"`+value+`"}}}`))
	job := &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}
	check.Must(t, s.Hub.Admin.Patch(t.Context(), job, patch))
}

// TestOnlyTheJobThatWasLookedAt: a deletion that was decided for one job does not hit a job that has changed since, or
// another job of the same name. The caches of a stopped process show what was.
func TestOnlyTheJobThatWasLookedAt(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *scene){
		"Changed": func(t *testing.T, s *scene) { s.annotate(t, "job", "3600") },
		"CreatedAgain": func(t *testing.T, s *scene) {
			check.Must(t, s.Hub.Admin.Delete(t.Context(), &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "job"}}))
			check.Must(t, s.Hub.Admin.Delete(t.Context(), s.Dispatch(t, "job")))
			s.submit(t, "job")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.ended(t, "job", ttl("0"))
			s.Settle(t, s.options.Hub)
			s.stop()
			change(t, s)
			result, err := s.reconciler.Reconcile(t.Context(), request(s.Key("job")))
			if err != nil || result.RequeueAfter == 0 {
				t.Errorf("Reconcile() = %v, %v, want another pass", result, err)
			}
			s.wantThere(t, "job", true, "it is not the job that was looked at")
		})
	}
}

// TestDispatchOfAnotherJob: the record of a job that is gone says nothing about its successor.
func TestDispatchOfAnotherJob(t *testing.T) {
	s := newScene(t)
	s.ended(t, "job", ttl("0"))
	check.Must(t, s.Hub.Admin.Delete(t.Context(), &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "job"}}))
	s.Submit(t, "job", ttl("0"))
	s.pass(t, "job")
	s.wantThere(t, "job", true, "the finished Dispatch is of its predecessor")
}

// TestKeptByFinalizer: a job that somebody keeps is deleted once.
func TestKeptByFinalizer(t *testing.T) {
	s := newScene(t)
	s.ended(t, "job", ttl("0"), func(job *trainer.TrainJob) { job.Finalizers = []string{"example.com/keep"} })
	s.pass(t, "job")
	before := stage.ReadTrainJob(t, s.Hub.Admin, s.Key("job"))
	if before == nil || before.GetDeletionTimestamp() == nil {
		t.Fatalf("the job is %v, want it to be there and to be deleted", before)
	}
	check.Equal(t, 0, s.pass(t, "job"), "the job is looked at again after")
}

// TestWatches runs the controller: each of these events alone is enough for the deletion of a job. A canary that must
// stay shows that nothing else is deleted.
func TestWatches(t *testing.T) {
	for name, test := range map[string]struct {
		job    func(*trainer.TrainJob)
		policy *int32
		// change happens when the job has finished and was looked at. Nil: the time alone.
		change func(t *testing.T, s *scene)
	}{
		"Time":      {job: ttl("2")},
		"Annotated": {change: func(t *testing.T, s *scene) { s.annotate(t, "job", "0") }},
		"Shortened": {job: ttl("3600"), change: func(t *testing.T, s *scene) { s.annotate(t, "job", "1") }},
		"Labelled": {policy: new(int32(0)), job: func(job *trainer.TrainJob) { job.Labels = map[string]string{"keep": "yes"} }, change: func(t *testing.T, s *scene) {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"keep":null}}}`))
			check.Must(t, s.Hub.Admin.Patch(t.Context(), &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "job"}}, patch))
		}},
		"PolicyCreated": {change: func(t *testing.T, s *scene) { s.policy(t, new(int32(0))) }},
		"PolicyShortened": {policy: new(int32(3600)), change: func(t *testing.T, s *scene) {
			s.changePolicy(t, func(spec *v1alpha1.DispatchPolicySpec) { spec.TTLSecondsAfterFinished = new(int32(0)) })
		}},
		"NamespaceLabelled": {change: func(t *testing.T, s *scene) {
			s.policy(t, new(int32(0)))
			s.changePolicy(t, func(spec *v1alpha1.DispatchPolicySpec) {
				spec.Jobs.NamespaceSelector.MatchLabels = map[string]string{"team": s.Namespace}
			})
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"`+s.Namespace+`"}}}`))
			check.Must(t, s.Hub.Admin.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}}, patch))
		}},
		"Restart": {job: ttl("0"), change: func(t *testing.T, s *scene) { s.start(t, true) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			if test.policy != nil {
				s.policy(t, test.policy)
				if test.job != nil {
					s.changePolicy(t, func(spec *v1alpha1.DispatchPolicySpec) {
						spec.Jobs.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
							{Key: "keep", Operator: metav1.LabelSelectorOpDoesNotExist},
						}}
					})
				}
			}
			if name != "Restart" {
				s.start(t, true)
			}
			s.ended(t, "canary", ttl("86400"))
			change := func(*trainer.TrainJob) {}
			if test.job != nil {
				change = test.job
			}
			s.ended(t, "job", change)
			s.Settle(t, s.options.Hub)
			if test.change != nil {
				s.wantThere(t, "job", true, "nothing has happened yet")
				test.change(t, s)
			}
			s.awaitGone(t, "job")
			s.wantThere(t, "canary", true, "its annotation has another time")
		})
	}
}

func (s *scene) changePolicy(t *testing.T, change func(*v1alpha1.DispatchPolicySpec)) {
	t.Helper()
	policy := &v1alpha1.DispatchPolicy{}
	check.Must(t, s.Hub.Admin.Get(t.Context(), client.ObjectKey{Name: s.Namespace}, policy))
	change(&policy.Spec)
	check.Must(t, s.Hub.Admin.Update(t.Context(), policy))
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
	s.start(t, false)
	s.ended(t, "job", ttl("0"))
	s.Settle(t, s.options.Hub)
	_, err := s.Hub.Cluster.Kubectl(t.Context(), "patch", "clusterrole", "trainyard-manager", "--type=json",
		"-p", `[{"op":"test","path":"/rules/0/verbs","value":["delete"]},{"op":"remove","path":"/rules/0"}]`)
	check.Must(t, err)
	restore := sync.OnceFunc(func() {
		check.Must(t, s.Hub.Cluster.ApplyFiles(context.Background(), "../../../config/rbac/cluster_role.yaml"))
	})
	t.Cleanup(restore)
	await := func(allowed bool) {
		t.Helper()
		check.Eventually(t, "the API server to know the role", func(g gomega.Gomega) {
			_, err := s.Hub.Cluster.Kubectl(t.Context(), "auth", "can-i", "delete", "trainjobs.trainer.kubeflow.org",
				"--as", s.ManagerAccount().Impersonate.UserName)
			g.Expect(err == nil).To(gomega.Equal(allowed))
		})
	}
	await(false)
	for range 2 {
		if _, err := s.reconciler.Reconcile(t.Context(), request(s.Key("job"))); err == nil {
			t.Error("Reconcile() has no error, so nobody tries again")
		}
	}
	s.wantThere(t, "job", true, "the manager may not delete it")
	if told := strings.Join(s.Events.About("job"), "\n"); !strings.Contains(told, "Warning ExpiryRefused ") {
		t.Errorf("Events: %s, want ExpiryRefused", told)
	}
	restore()
	await(true)
	s.pass(t, "job")
	s.wantThere(t, "job", false, "the manager may delete it again")
	check.Equal(t, 1, written, "how often the job was archived")
}

// archiver is an archive that calls a function.
type archiver func(context.Context, archive.Entry) error

// Keep implements expiry.Archive.
func (a archiver) Keep(ctx context.Context, entry archive.Entry) error { return a(ctx, entry) }

// TestArchive: a job is in the archive as the API server had it, with the history of its Dispatch, before it goes. The
// caches have less of a finished job.
func TestArchive(t *testing.T) {
	s := newScene(t)
	path := t.TempDir()
	dir, err := archive.NewDir(path, "manager-0")
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, dir.Close()) })
	s.options.Archive = archiver(func(ctx context.Context, entry archive.Entry) error {
		err := dir.Keep(ctx, entry)
		s.wantThere(t, "job", true, "it is archived first")
		return err
	})
	s.start(t, false)
	s.ended(t, "job", ttl("0"))
	s.pass(t, "job")
	s.wantThere(t, "job", false, "its time is over")
	files, err := filepath.Glob(filepath.Join(path, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the archive has the files %q, %v, want one", files, err)
	}
	data, err := os.ReadFile(files[0])
	check.Must(t, err)
	var got archive.Entry
	if err := json.Unmarshal(bytes.TrimSuffix(data, []byte("\n")), &got); err != nil {
		t.Fatalf("the archive has %s: %v", data, err)
	}
	runtime, _, _ := unstructured.NestedString(got.TrainJob.Object, "spec", "runtimeRef", "name")
	if runtime != "torch-distributed" || len(got.Dispatch.Spec.PodSets) != 1 || len(got.Dispatch.Status.History) != 1 {
		t.Errorf("the archive has %s, want the whole spec, the demand and the history", data)
	}
}

// TestStartAmongFinishedJobs: a manager that starts reads finished jobs late, and archives and deletes those whose time is
// over all the same, each once.
func TestStartAmongFinishedJobs(t *testing.T) {
	s := newScene(t)
	s.policy(t, new(int32(0)))
	const number = 20
	for i := range number {
		s.ended(t, fmt.Sprintf("old-%02d", i))
	}
	s.ended(t, "kept", ttl("86400"))
	s.submit(t, "live")
	var mu sync.Mutex
	archived := map[string]int{} // under mu
	s.options.Archive = archiver(func(_ context.Context, entry archive.Entry) error {
		mu.Lock()
		defer mu.Unlock()
		archived[entry.TrainJob.GetName()]++
		return nil
	})
	s.start(t, true)
	for i := range number {
		s.awaitGone(t, fmt.Sprintf("old-%02d", i))
	}
	s.wantThere(t, "kept", true, "its own time is not over")
	s.wantThere(t, "live", true, "it has not ended")
	mu.Lock()
	defer mu.Unlock()
	for i := range number {
		check.Equal(t, 1, archived[fmt.Sprintf("old-%02d", i)], "entries in the archive of job %d", i)
	}
	check.Equal(t, number, len(archived), "jobs in the archive")
}

// TestArchiveFails: a job that cannot be archived stays, its owner hears why, and it is tried again.
func TestArchiveFails(t *testing.T) {
	s := newScene(t)
	full := errors.New("no space left on device")
	s.options.Archive = archiver(func(context.Context, archive.Entry) error { return full })
	s.start(t, false)
	s.ended(t, "job", ttl("0"))
	if _, err := s.reconcile(t, "job"); !errors.Is(err, full) {
		t.Errorf("Reconcile() = %v, want an error that brings the job again", err)
	}
	s.wantThere(t, "job", true, "it is not archived")
	told := strings.Join(s.Events.About("job"), "\n")
	if !strings.Contains(told, "ArchiveFailed") || !strings.Contains(told, full.Error()) {
		t.Errorf("Events: %q, want what the archive says", told)
	}
	full = nil
	s.pass(t, "job")
	s.wantThere(t, "job", false, "the archive has it")
}

// TestArchiveSideBySide: an archive or a hub that answers slowly does not make the controller fall behind, because it
// does not work on one job after the other.
func TestArchiveSideBySide(t *testing.T) {
	const jobs = 16
	s := newScene(t)
	var inside atomic.Int32
	together := make(chan struct{})
	s.options.Archive = archiver(func(ctx context.Context, _ archive.Entry) error {
		if inside.Add(1) == jobs {
			close(together)
		}
		select {
		case <-together:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	for i := range jobs {
		s.ended(t, fmt.Sprintf("job-%d", i), ttl("0"))
	}
	s.start(t, true)
	for i := range jobs {
		s.awaitGone(t, fmt.Sprintf("job-%d", i))
	}
}

// TestArchivedAgain: a job that changes after it was archived is not deleted, and is archived again when its time is
// over.
func TestArchivedAgain(t *testing.T) {
	s := newScene(t)
	written := 0
	change := true
	s.options.Archive = archiver(func(context.Context, archive.Entry) error {
		written++
		if change { // Between the archive and the deletion.
			s.annotate(t, "job", "3600")
		}
		return nil
	})
	s.start(t, false)
	s.ended(t, "job", ttl("0"))
	if again := s.pass(t, "job"); again == 0 {
		t.Error("the job does not come again after a conflict")
	}
	s.wantThere(t, "job", true, "its owner has given it more time")
	if s.pass(t, "job"); written != 1 {
		t.Errorf("archived %d times, want once", written)
	}
	change = false
	s.annotate(t, "job", "0")
	s.pass(t, "job")
	s.wantThere(t, "job", false, "its time is over again")
	if written != 2 {
		t.Errorf("archived %d times, want twice: the job had changed", written)
	}
}

// TestArchiveOfAnotherJob: what is archived is what is deleted. A job that was created again is not archived.
func TestArchiveOfAnotherJob(t *testing.T) {
	s := newScene(t)
	s.options.Archive = archiver(func(_ context.Context, entry archive.Entry) error {
		t.Errorf("archived %v", entry.TrainJob)
		return nil
	})
	s.start(t, false)
	s.ended(t, "job", ttl("0"))
	s.Settle(t, s.options.Hub)
	s.stop()
	check.Must(t, s.Hub.Admin.Delete(t.Context(), &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "job"}}))
	check.Must(t, s.Hub.Admin.Delete(t.Context(), s.Dispatch(t, "job")))
	s.submit(t, "job")
	if result, err := s.reconciler.Reconcile(t.Context(), request(s.Key("job"))); err != nil || result.RequeueAfter == 0 {
		t.Errorf("Reconcile() = %v, %v, want another pass", result, err)
	}
	s.wantThere(t, "job", true, "it is another job")
}
