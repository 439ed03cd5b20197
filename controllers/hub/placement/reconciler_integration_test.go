// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/laws"
	"github.com/trainyard/trainyard/test/stage"
)

// counted is what a Dispatch records of a job of torch-distributed as both are now.
func (s *scene) counted(t *testing.T, name string) *v1alpha1.Counted {
	t.Helper()
	job := stage.ReadTrainJob(t, s.Hub.Admin, s.Key(name))
	runtime := &trainer.ClusterTrainingRuntime{}
	check.Must(t, s.Hub.Admin.Get(t.Context(), client.ObjectKey{Name: "torch-distributed"}, runtime))
	return &v1alpha1.Counted{
		Generation: job.GetGeneration(), Digest: trainjobs.Digest(job),
		Runtime: fmt.Sprintf("%s.%d", runtime.UID, runtime.Generation),
	}
}

// The Dispatch has the decision and everything that was decided with it, and it is written once.
func TestDecisionIsRecordedOnce(t *testing.T) {
	s := newScene(t)
	s.Submit(t, "job", func(job *trainer.TrainJob) { // Only west has nics.
		requests := corev1.ResourceList{gpu: resource.MustParse("4"), nic: resource.MustParse("1")}
		job.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Requests: requests, Limits: requests}
	})
	job := &trainer.TrainJob{}
	check.Must(t, s.Hub.Admin.Get(t.Context(), s.Key("job"), job))

	d, _ := s.reconcile(t, "job")
	if d == nil {
		t.Fatal("there is no Dispatch")
	}
	want := &v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: "job", Generation: 1,
			Finalizers: []string{v1alpha1.FinalizerCopy},
			Annotations: map[string]string{
				v1alpha1.AnnotationDecision: "score 88: MostAllocated 88; the only worker on which the job fits",
				annotationAsked:             d.Annotations[annotationAsked], // Tested elsewhere.
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "TrainJob", Name: "job", UID: job.UID,
				Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		Spec: v1alpha1.DispatchSpec{
			TrainJob: v1alpha1.TrainJobReference{Name: "job", UID: job.UID}, Cluster: west, ClusterID: s.Worker(west).ID, Attempt: 1,
			Failover: v1alpha1.FailoverHold, Counted: s.counted(t, "job"),
			PodSets: []v1alpha1.PodSet{{
				Name: "node", Role: v1alpha1.RoleTrainer, Count: 2,
				Requests: corev1.ResourceList{gpu: resource.MustParse("4"), nic: resource.MustParse("1")},
			}},
		},
		Status: v1alpha1.DispatchStatus{Phase: v1alpha1.PhasePending},
	}
	ignored := cmpopts.IgnoreFields(metav1.ObjectMeta{}, "UID", "ResourceVersion", "CreationTimestamp", "ManagedFields")
	check.Diff(t, want, d, "Dispatch", ignored)
	again, _ := s.reconcile(t, "job")
	s.restart(t)
	afterRestart, _ := s.reconcile(t, "job")
	for what, got := range map[string]*v1alpha1.Dispatch{"again": again, "after a restart": afterRestart} {
		check.Diff(t, d, got, fmt.Sprintf("the Dispatch was written when the job was reconciled %s", what))
	}
}

// A placed job counts before its pods are bound, also after a restart, so that a burst does not overfill a worker. When
// the pods are bound, they do not count twice. When a job ends, its room is free for the next job.
func TestBurstDoesNotOverfill(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		// between is what happens after each decision.
		between func(t *testing.T, s *scene, d *v1alpha1.Dispatch)
		// bound: the pods are bound before the next decision.
		bound bool
	}{
		"InOneProcess": {
			reason:  "the decider knows what it has decided, without any event",
			between: func(*testing.T, *scene, *v1alpha1.Dispatch) {},
		},
		"EventsComeIn": {
			reason:  "a Dispatch that is seen is the one that was decided",
			between: func(_ *testing.T, s *scene, d *v1alpha1.Dispatch) { s.tell(d) },
		},
		"Restarts": {
			reason:  "the Dispatches say what is placed",
			between: func(t *testing.T, s *scene, _ *v1alpha1.Dispatch) { s.restart(t) },
		},
		"PodsAreBound": {
			reason:  "a pod that is bound takes the place of its reservation",
			between: func(t *testing.T, s *scene, d *v1alpha1.Dispatch) { s.bind(t, d) },
			bound:   true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			placed, jobs := map[v1alpha1.ClusterName]int{}, []*v1alpha1.Dispatch{}
			for i := range 5 {
				name := fmt.Sprintf("job-%d", i)
				s.Submit(t, name)
				d, _ := s.reconcile(t, name)
				placed[d.Spec.Cluster]++
				jobs = append(jobs, d)
				if d.Spec.Cluster == "" {
					continue
				}
				test.between(t, s, d)
				if test.bound {
					s.awaitUsed(t, int64(8*(i+1)))
				}
			}
			if diff := cmp.Diff(map[v1alpha1.ClusterName]int{east: 2, west: 2, "": 1}, placed); diff != "" {
				t.Fatalf("jobs by worker: %s (-want +got):\n%s", test.reason, diff)
			}
			waiting := jobs[4]
			if waiting.Spec.Attempt != 0 || len(waiting.Finalizers) > 0 || waiting.Status.Reason != v1alpha1.ReasonNoFit {
				t.Errorf("the fifth job's Dispatch is %+v, want one that waits with %s", waiting, v1alpha1.ReasonNoFit)
			}
			reasons := map[v1alpha1.ClusterName]string{}
			for _, line := range waiting.Status.Explanation {
				reasons[line.Cluster] = line.Reason
			}
			all := map[v1alpha1.ClusterName]string{east: v1alpha1.ReasonInsufficientResources, west: v1alpha1.ReasonInsufficientResources}
			check.Diff(t, all, reasons, "explanation")
			if again, _ := s.reconcile(t, waiting.Name); !cmp.Equal(waiting, again) {
				t.Errorf("the Dispatch of the waiting job was written again (-before +after):\n%s", cmp.Diff(waiting, again))
			}
			if test.bound {
				return // Its pods would have to go too.
			}
			s.report(t, jobs[0], v1alpha1.DispatchFinished, metav1.ConditionTrue, v1alpha1.OutcomeComplete)
			if d, _ := s.reconcile(t, waiting.Name); d.Spec.Cluster != jobs[0].Spec.Cluster || d.Spec.Attempt != 1 || len(d.Finalizers) != 1 {
				t.Errorf("the fifth job's Dispatch is %+v, want it on %s, where a job has ended, with the finalizer", d, jobs[0].Spec.Cluster)
			}
		})
	}
}

// A refused job goes to the next worker with the next attempt, and a worker that refused is asked again after a
// back-off.
func TestRefusedJobMovesAndComesBack(t *testing.T) {
	s := newScene(t)
	s.Submit(t, "job")
	first, _ := s.reconcile(t, "job")
	refuse := func(d *v1alpha1.Dispatch) {
		s.report(t, d, v1alpha1.DispatchMirrored, metav1.ConditionFalse, v1alpha1.OutcomeRejected)
	}
	expect := func(what string, cluster v1alpha1.ClusterName, attempt int32) *v1alpha1.Dispatch {
		t.Helper()
		d, _ := s.reconcile(t, "job")
		if d.Spec.Cluster != cluster || d.Spec.Attempt != attempt {
			t.Fatalf("%s the job is on %q with attempt %d, want %q with %d", what, d.Spec.Cluster, d.Spec.Attempt, cluster, attempt)
		}
		return d
	}
	other := map[v1alpha1.ClusterName]v1alpha1.ClusterName{east: west, west: east}[first.Spec.Cluster]

	refuse(first)
	second := expect("after a refusal", other, 2)
	s.Clock.Step(30 * time.Second)
	refuse(second)
	waiting, result := s.reconcile(t, "job")
	if waiting.Spec.Cluster != "" || waiting.Spec.Attempt != 2 || len(waiting.Finalizers) > 0 {
		t.Fatalf("the Dispatch is %+v, want one that waits, without a finalizer", waiting)
	}
	placed := meta.FindStatusCondition(waiting.Status.Conditions, v1alpha1.DispatchPlaced)
	if placed == nil || placed.Reason != v1alpha1.ReasonRejected {
		t.Errorf("condition Placed is %+v, want it by %s", placed, v1alpha1.ReasonRejected)
	}
	if result.RequeueAfter != 30*time.Second {
		t.Errorf("looked at again after %s, want 30s: a minute after the first refusal", result.RequeueAfter)
	}
	s.restart(t) // What has been refused is on the Dispatch.
	s.Clock.Step(29 * time.Second)
	expect("before the back-off is over", "", 2)
	s.Clock.Step(time.Second)
	third := expect("after the back-off", first.Spec.Cluster, 3)
	if len(third.Finalizers) != 1 {
		t.Errorf("finalizers are %v, want ours on a placed Dispatch", third.Finalizers)
	}

	refuse(third)
	s.Clock.Step(30 * time.Second)
	fourth := expect("a minute after the other's refusal", other, 4)
	refuse(fourth)
	s.Clock.Step(89 * time.Second)
	expect("within the doubled back-off", "", 4)
	s.Clock.Step(time.Second)
	expect("after the doubled back-off", first.Spec.Cluster, 5)
}

// spec.suspend is a gate in front of placement, and ends the attempt of a job that is placed: a resumed job is placed
// again. As long as the job has no copy its status says whether it is suspended.
func TestSuspendedJobIsNotPlaced(t *testing.T) {
	s := newScene(t)
	s.Submit(t, "job", func(job *trainer.TrainJob) { job.Spec.Suspend = new(true) })
	if d, result := s.reconcile(t, "job"); d != nil || result.RequeueAfter != 0 {
		t.Errorf("a suspended job has the Dispatch %+v and is looked at after %s, want neither", d, result.RequeueAfter)
	}
	says := func(want ...metav1.Condition) {
		t.Helper()
		job := &trainer.TrainJob{}
		check.Must(t, s.Hub.Admin.Get(t.Context(), s.Key("job"), job))
		check.Diff(t, want, job.Status.Conditions,
			"conditions of the job", cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime"))
	}
	isSuspended := metav1.Condition{
		Type: trainer.TrainJobSuspended, Status: metav1.ConditionTrue, Reason: trainer.TrainJobSuspendedReason, Message: "TrainJob is suspended",
	}
	says(isSuspended)
	suspend := func(suspend bool) {
		job := &trainer.TrainJob{}
		check.Must(t, s.Hub.Admin.Get(t.Context(), s.Key("job"), job))
		job.Spec.Suspend = new(suspend)
		check.Must(t, s.Hub.Admin.Update(t.Context(), job))
	}
	suspend(false)
	placed, _ := s.reconcile(t, "job")
	if placed == nil || placed.Spec.Cluster == "" {
		t.Fatalf("the Dispatch of the resumed job is %+v, want it placed", placed)
	}
	suspend(true)
	evicted, _ := s.reconcile(t, "job")
	want := &v1alpha1.Eviction{Reason: v1alpha1.EvictionSuspended, Message: "the TrainJob has spec.suspend: true"}
	if diff := cmp.Diff(want, evicted.Spec.Eviction); diff != "" || evicted.Spec.Cluster != placed.Spec.Cluster {
		t.Errorf("the eviction of the suspended job (-want +got):\n%s", diff)
	}
	suspend(false)
	if d, _ := s.reconcile(t, "job"); !cmp.Equal(evicted, d) {
		t.Errorf("the attempt is not over, and the Dispatch was written (-before +after):\n%s", cmp.Diff(evicted, d))
	}
	suspend(true)
	s.endsAttempt(t, evicted, v1alpha1.OutcomeSuspended)
	if d, _ := s.reconcile(t, "job"); d.Spec.Cluster != "" || d.Spec.Eviction != nil || d.Status.Reason != v1alpha1.ReasonSuspended {
		t.Errorf("the Dispatch is %+v, want no worker while the job is suspended", d)
	}
	says(isSuspended)
	s.worker(t, east, cordon)
	s.worker(t, west, cordon)
	suspend(false)
	if d, _ := s.reconcile(t, "job"); d.Spec.Cluster != "" || d.Status.Reason != v1alpha1.ReasonNoFit {
		t.Errorf("the Dispatch is %+v, want that the job waits for room", d)
	}
	says() // Clients would take a condition that is False for the state: kubectl's column is the type of the last one.
	s.worker(t, east, func(worker *v1alpha1.WorkerCluster) { worker.Spec.Unschedulable = false })
	if d, _ := s.reconcile(t, "job"); d.Spec.Cluster == "" || d.Spec.Attempt != 2 {
		t.Errorf("the Dispatch of the resumed job is %+v, want the next attempt", d)
	}
}

// A worker returns at the moment when an attempt on it is given up, and the copy says that the job is Complete. The job
// is not placed again, even while the cache does not show the end, and its Dispatch says that it has finished.
func TestJobThatEndsAsItIsGivenUp(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		// lags: the hub's cache does not show the end at first. cordoned: the job could not be placed anyway.
		lags, cordoned bool
	}{
		"Seen":            {reason: "the usual order of events"},
		"Lagging":         {reason: "the Dispatch's event came before the TrainJob's", lags: true},
		"LaggingCordoned": {reason: "without a worker the Dispatch would say nothing about the end any more", lags: true, cordoned: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.Submit(t, "job")
			d, _ := s.reconcile(t, "job")
			before := s.TrainJob(t, "job")
			s.endsAttempt(t, d, v1alpha1.OutcomeWorkerLost)
			if test.cordoned {
				s.worker(t, east, cordon)
				s.worker(t, west, cordon)
			}
			ended := s.TrainJob(t, "job")
			meta.SetStatusCondition(&ended.Status.Conditions, metav1.Condition{
				Type: trainer.TrainJobComplete, Status: metav1.ConditionTrue, Reason: "Because", Message: "it is Complete",
			})
			check.Must(t, s.Hub.Admin.Status().Update(t.Context(), ended))
			given := s.Dispatch(t, "job")
			if test.lags {
				s.reconciler.observer.hub = outdatedHub{Client: s.Hub.Admin, job: before}
				now, result := s.reconcile(t, "job")
				if diff := cmp.Diff(given.Spec, now.Spec); diff != "" || result.RequeueAfter == 0 {
					t.Errorf("looked at again after %s; the Dispatch was written (-before +after):\n%s", result.RequeueAfter, diff)
				}
				s.reconciler.observer.hub = s.Hub.Admin
			}
			now, _ := s.reconcile(t, "job")
			if now == nil {
				t.Fatal("the Dispatch is gone")
			}
			if err := laws.Check(given, now); err != nil {
				t.Errorf("a write that no table has: %v", err)
			}
			if state := record.StateOf(now); state != record.Finished || now.Status.Reason != v1alpha1.ReasonComplete {
				t.Errorf("the Dispatch is %s by %s, want Finished by Complete: %s", state, now.Status.Reason, test.reason)
			}
			if again, _ := s.reconcile(t, "job"); again.ResourceVersion != now.ResourceVersion {
				t.Error("the same was written again")
			}
		})
	}
}

// The cache shows that a Dispatch waits. The Dispatch is not deleted if it has got a worker since then.
func TestOnlyAWaitingDispatchIsDeleted(t *testing.T) {
	s := newScene(t)
	s.worker(t, east, cordon)
	s.worker(t, west, cordon)
	s.Submit(t, "job")
	waiting, _ := s.reconcile(t, "job")
	s.worker(t, west, func(worker *v1alpha1.WorkerCluster) { worker.Spec.Unschedulable = false })
	placed, _ := s.reconcile(t, "job")
	if placed.Spec.Cluster != west {
		t.Fatalf("the job is on %q, want west", placed.Spec.Cluster)
	}
	ended := s.TrainJob(t, "job")
	meta.SetStatusCondition(&ended.Status.Conditions, metav1.Condition{
		Type: trainer.TrainJobComplete, Status: metav1.ConditionTrue, Reason: "Because", Message: "it is Complete",
	})
	check.Must(t, s.Hub.Admin.Status().Update(t.Context(), ended))
	s.reconciler.observer.hub = outdatedHub{Client: s.Hub.Admin, dispatch: waiting}
	now, result := s.reconcile(t, "job")
	if now == nil || now.DeletionTimestamp != nil || result.RequeueAfter == 0 {
		t.Errorf("the record of a job that has ended is being deleted: %+v", now)
	}
}

// outdatedHub is a hub whose cache shows the given, earlier objects.
type outdatedHub struct {
	client.Client
	job      *trainer.TrainJob
	dispatch *v1alpha1.Dispatch
}

// Get implements client.Reader.
func (h outdatedHub) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	switch to := object.(type) {
	case *unstructured.Unstructured:
		if h.job != nil && key == client.ObjectKeyFromObject(h.job) {
			if err := h.Client.Get(ctx, key, to, options...); err != nil {
				return err
			}
			delete(to.Object, "status")
			to.SetResourceVersion(h.job.ResourceVersion)
			return nil
		}
	case *v1alpha1.Dispatch:
		if h.dispatch != nil && key == client.ObjectKeyFromObject(h.dispatch) {
			h.dispatch.DeepCopyInto(to)
			return nil
		}
	}
	return h.Client.Get(ctx, key, object, options...)
}

// A job of a protected namespace is never placed, and its Dispatch and an Event say why.
func TestProtectedNamespace(t *testing.T) {
	s := newScene(t)
	s.Submit(t, "job")
	s.reconciler.needs.protected = func(namespace string) bool { return namespace == s.Namespace }
	for range 2 {
		d, _ := s.reconcile(t, "job")
		if d == nil || d.Spec.Cluster != "" {
			t.Fatalf("the Dispatch is %+v, want one that waits", d)
		}
		condition := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced)
		if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != v1alpha1.ReasonProtectedNamespace ||
			!strings.Contains(condition.Message, s.Namespace) || !strings.Contains(condition.Message, "--protected-namespaces") {
			t.Errorf("condition Placed is %+v, want it False by %s, with words", condition, v1alpha1.ReasonProtectedNamespace)
		}
	}
	if told := strings.Join(s.Events.Take(), "\n"); !strings.HasPrefix(told, corev1.EventTypeWarning) || !strings.Contains(told, v1alpha1.ReasonProtectedNamespace) {
		t.Errorf("the Event is %q", told)
	}
	s.reconciler.needs.protected = nil
	if d, _ := s.reconcile(t, "job"); d.Spec.Cluster == "" {
		t.Error("the job waits though its namespace is protected no more")
	}
}

// A worker that refuses to be swept gets no jobs: nothing would be created there. The explanation of the job says so,
// and the job is placed when the worker has been swept.
func TestUnsweptWorkerGetsNoJobs(t *testing.T) {
	s := newScene(t)
	refuse := func(w *v1alpha1.WorkerCluster) {
		meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{
			Type: v1alpha1.WorkerClusterSweepRefused, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRefused,
			Message: `admission webhook "w" denied the request`,
		})
	}
	s.worker(t, east, cordon)
	s.worker(t, west, refuse)
	s.Submit(t, "job")
	d, _ := s.reconcile(t, "job")
	if d.Spec.Cluster != "" {
		t.Fatalf("the job is placed on %q, where nothing can be created", d.Spec.Cluster)
	}
	at := slices.IndexFunc(d.Status.Explanation, func(line v1alpha1.ClusterExplanation) bool { return line.Cluster == west })
	if at < 0 {
		t.Fatalf("the Dispatch explains %+v, want a line of the worker", d.Status.Explanation)
	}
	if line := d.Status.Explanation[at]; line.Reason != v1alpha1.ReasonNotReady ||
		!strings.Contains(line.Message, `SweepRefused: admission webhook "w" denied the request`) {
		t.Errorf("the worker's line is %+v", line)
	}
	before := &v1alpha1.WorkerCluster{}
	refuse(before)
	if !workerPredicate().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: &v1alpha1.WorkerCluster{}}) {
		t.Error("nobody looks at the jobs that wait when the worker has been swept")
	}
	s.worker(t, west, func(w *v1alpha1.WorkerCluster) {
		meta.RemoveStatusCondition(&w.Status.Conditions, v1alpha1.WorkerClusterSweepRefused)
	})
	if d, _ = s.reconcile(t, "job"); d.Spec.Cluster != west {
		t.Errorf("the worker has been swept, and the job is on %q", d.Spec.Cluster)
	}
}
