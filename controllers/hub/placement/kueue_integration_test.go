// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/kueue"
	"github.com/trainyard/trainyard/test/check"
)

const (
	multiKueueCheck, provisioningCheck, roomCheck = "multikueue", "provisioning", "room"
	admitted, evictedByKueue, withQuota           = "Admitted", "Evicted", "QuotaReserved"
)

// kueueAPI is the API of a Kueue on the hub, whose controllers' part the test plays, and a Watch of it.
type kueueAPI struct {
	*scene
	watch *kueue.Watch
}

// withKueue installs Kueue's CRDs, which stay, and has the scene's reconcilers watch them.
func (s *scene) withKueue(t *testing.T) *kueueAPI {
	t.Helper()
	check.Must(t, s.Hub.Cluster.ApplyFiles(t.Context(), filepath.Join("kueue", "testdata", "crds.yaml")))
	k := &kueueAPI{scene: s}
	for name, controller := range map[string]string{
		multiKueueCheck: v1alpha1.ManagedByMultiKueue, provisioningCheck: "kueue.x-k8s.io/provisioning-request",
		roomCheck: kueue.CheckController,
	} {
		admissionCheck := kueueObject("kueue.x-k8s.io/v1beta2", "AdmissionCheck", name)
		admissionCheck.Object["spec"] = map[string]any{"controllerName": controller}
		served(t, "AdmissionChecks", func() error { return ignoreExists(s.Hub.Admin.Create(t.Context(), admissionCheck.DeepCopy())) })
	}
	served(t, "Workloads", func() error {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("kueue.x-k8s.io/v1beta2")
		list.SetKind("WorkloadList")
		return s.Hub.Admin.List(t.Context(), list)
	})
	k.startWatch(t)
	return k
}

// served waits until a new API answers.
func served(t *testing.T, what string, probe func() error) {
	t.Helper()
	gomega.NewWithT(t).Eventually(probe, check.Patience, 20*time.Millisecond).Should(gomega.Succeed(), what+" are served")
}

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// startWatch is a new process that has not seen anything of Kueue yet.
func (k *kueueAPI) startWatch(t *testing.T) {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(k.Hub.Cluster.Config)
	check.Must(t, err)
	k.watch = kueue.New(kueue.Options{Config: k.Hub.Cluster.Config, HTTPClient: httpClient, Logger: logr.Discard(), Checks: kueue.CheckController})
	k.kueue = k.watch
	k.restart(t)
}

// read has the Watch read what there is.
func (k *kueueAPI) read(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.watch.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		check.Must(t, <-ended)
	})
	gomega.NewWithT(t).Eventually(k.watch.Known, check.Patience, 5*time.Millisecond).Should(gomega.BeTrue())
}

func kueueObject(apiVersion, kind, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name},
	}}
}

// setWorkload makes the Workload of a job have these conditions and checks, such as "room:Pending", and waits until the
// Watch says of the job what is wanted.
func (k *kueueAPI) setWorkload(t *testing.T, job string, want kueue.Standing, conditions []string, checks ...string) {
	t.Helper()
	w := kueueObject("kueue.x-k8s.io/v1beta2", "Workload", "trainjob-"+job)
	w.SetNamespace(k.Namespace)
	if err := k.Hub.Admin.Get(t.Context(), client.ObjectKeyFromObject(w), w); err != nil {
		check.Must(t, client.IgnoreNotFound(err))
		metadata := w.Object["metadata"].(map[string]any)
		metadata["ownerReferences"] = []any{map[string]any{
			"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": job,
			"uid": string(k.TrainJob(t, job).UID), "controller": true,
		}}
		w.Object["spec"] = map[string]any{"queueName": "research"}
		check.Must(t, k.Hub.Admin.Create(t.Context(), w))
	}
	var types, states []any
	for _, condition := range conditions {
		types = append(types, map[string]any{"type": condition, "status": "True"})
	}
	for _, admissionCheck := range checks {
		name, state, given := strings.Cut(admissionCheck, ":")
		if !given {
			state = kueues.CheckReady
		}
		states = append(states, map[string]any{"name": name, "state": state})
	}
	status := map[string]any{"conditions": types, "admissionChecks": states}
	if want == kueue.MultiKueue {
		status["clusterName"] = "far"
	}
	w.Object["status"] = status
	check.Must(t, k.Hub.Admin.Status().Update(t.Context(), w))
	k.awaitStanding(t, job, want)
}

// deleteWorkload deletes the Workload of a job, and waits until the Watch has seen that.
func (k *kueueAPI) deleteWorkload(t *testing.T, job string, want kueue.Standing) {
	t.Helper()
	w := kueueObject("kueue.x-k8s.io/v1beta2", "Workload", "trainjob-"+job)
	w.SetNamespace(k.Namespace)
	check.Must(t, k.Hub.Admin.Delete(t.Context(), w))
	k.awaitStanding(t, job, want)
}

func (k *kueueAPI) awaitStanding(t *testing.T, name string, want kueue.Standing) {
	t.Helper()
	job := trainjobs.New()
	check.Must(t, k.Hub.Admin.Get(t.Context(), k.Key(name), job))
	standing := func() string { return k.watch.Of(job).Standing.String() }
	gomega.NewWithT(t).Eventually(standing, check.Patience, 5*time.Millisecond).
		Should(gomega.Equal(want.String()), "the cache of Workloads")
}

// awaitMessage waits until the Watch says something of a job whose standing does not change.
func (k *kueueAPI) awaitMessage(t *testing.T, name, words string) {
	t.Helper()
	job := trainjobs.New()
	check.Must(t, k.Hub.Admin.Get(t.Context(), k.Key(name), job))
	message := func() string { return k.watch.Of(job).Message }
	gomega.NewWithT(t).Eventually(message, check.Patience, 5*time.Millisecond).
		Should(gomega.ContainSubstring(words), "the cache of Workloads")
}

// queued gives a job a queue of Kueue.
func queued(job *trainer.TrainJob) {
	job.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "research"}
}

// waits fails unless a job waits for this reason, with these words in the message. A second look at the job must write
// nothing.
func (k *kueueAPI) waits(t *testing.T, job, reason, words string) *v1alpha1.Dispatch {
	t.Helper()
	d := k.expect(t, job, reason)
	message := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced).Message
	if !strings.Contains(message, words) {
		t.Errorf("the message is %q, want %q in it", message, words)
	}
	if again, _ := k.reconcile(t, job); !cmp.Equal(d, again) {
		t.Errorf("the Dispatch was written again (-before +after):\n%s", cmp.Diff(d, again))
	}
	return d
}

// placed fails unless a job is placed with an attempt.
func (k *kueueAPI) placed(t *testing.T, job string, attempt int32) *v1alpha1.Dispatch {
	t.Helper()
	d, _ := k.reconcile(t, job)
	if d == nil || d.Spec.Cluster == "" || d.Spec.Attempt != attempt {
		t.Fatalf("the Dispatch of %s is %+v, want it placed with attempt %d", job, d, attempt)
	}
	return d
}

// A job that MultiKueue dispatches is not placed, whatever comes first: its resumption, its Workload, its check. Its
// Dispatch says so, and one Event does. When MultiKueue has it no longer, it is placed.
func TestJobOfMultiKueueIsNotPlaced(t *testing.T) {
	k := newScene(t).withKueue(t)
	k.read(t)
	k.Submit(t, "job", queued)
	if d, result := k.reconcile(t, "job"); d != nil || result.RequeueAfter != unreportedWait {
		t.Fatalf("the Dispatch is %+v, looked at again after %s, want none: the Workload is probably on its way",
			d, result.RequeueAfter)
	}
	k.Clock.Step(unreportedWait)
	k.waits(t, "job", v1alpha1.ReasonWaitingForWorkload, `in queue "research"`)
	k.setWorkload(t, "job", kueue.Held, nil)
	k.waits(t, "job", v1alpha1.ReasonWaitingForWorkload, "has not admitted")
	k.Events.Take()
	k.setWorkload(t, "job", kueue.MultiKueue, []string{admitted}, multiKueueCheck, provisioningCheck)
	k.waits(t, "job", v1alpha1.ReasonManagedByMultiKueue, `admission check "multikueue"`)
	events := k.Events.Take()
	if len(events) != 1 || !strings.HasPrefix(events[0], "Warning Waiting ManagedByMultiKueue: ") {
		t.Errorf("the Events are %q, want one that says who dispatches the job", events)
	}
	k.setWorkload(t, "job", kueue.Free, []string{admitted}, provisioningCheck)
	k.placed(t, "job", 1)
}

// A job that is not Kueue's does not wait. A job that Kueue has admitted is placed with the writes of any other job.
func TestKueueInFront(t *testing.T) {
	k := newScene(t).withKueue(t)
	k.read(t)
	k.Submit(t, "plain")
	k.placed(t, "plain", 1)
	k.Submit(t, "gated", queued, func(job *trainer.TrainJob) { job.Spec.Suspend = new(true) })
	if d, _ := k.reconcile(t, "gated"); d != nil {
		t.Fatalf("the suspended job has the Dispatch %+v", d)
	}
	k.setWorkload(t, "gated", kueue.Free, []string{admitted}, provisioningCheck)
	job := k.TrainJob(t, "gated")
	job.Spec.Suspend = new(false)
	check.Must(t, k.Hub.Admin.Update(t.Context(), job))
	if d := k.placed(t, "gated", 1); d.Generation != 1 || len(d.Status.Conditions) > 0 {
		t.Errorf("the Dispatch is %+v, want it written once", d)
	}
	for _, event := range k.Events.Take() {
		if strings.Contains(event, "Waiting") {
			t.Errorf("an Event says %q", event)
		}
	}
	// Kueue suspends it now, and only then it leaves its worker.
	k.setWorkload(t, "gated", kueue.Held, []string{admitted, evictedByKueue})
	k.placed(t, "gated", 1)
	k.deleteWorkload(t, "gated", kueue.Held)
	if d := k.placed(t, "gated", 1); d.Spec.Eviction != nil {
		t.Errorf("the job is evicted: %+v", d.Spec.Eviction)
	}
}

// MultiKueue makes a copy of a job that runs here when its ClusterQueue gets MultiKueue's check. Our copy is deleted,
// also after a restart. Trainyard gets the job back only when MultiKueue's copy cannot run any more. The removal of the
// check does not prove that.
func TestPlacedJobGoesToMultiKueue(t *testing.T) {
	for name, between := range map[string]func(t *testing.T, k *kueueAPI){
		"InOneProcess": func(*testing.T, *kueueAPI) {},
		"Restart": func(t *testing.T, k *kueueAPI) {
			t.Helper()
			k.startWatch(t)
			k.read(t)
			k.awaitStanding(t, "job", kueue.MultiKueue)
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newScene(t).withKueue(t)
			k.read(t)
			k.Submit(t, "job", queued)
			k.setWorkload(t, "job", kueue.Free, []string{admitted})
			k.placed(t, "job", 1)
			k.setWorkload(t, "job", kueue.MultiKueue, []string{admitted}, multiKueueCheck)
			between(t, k)
			d := k.placed(t, "job", 1)
			eviction := d.Spec.Eviction
			if eviction == nil || eviction.Reason != v1alpha1.EvictionManagedByMultiKueue || eviction.Message == "" {
				t.Fatalf("spec.eviction is %+v, want one that says that MultiKueue has the job", eviction)
			}
			k.tell(d)
			k.endsAttempt(t, d, v1alpha1.OutcomeManagedByMultiKueue)
			k.waits(t, "job", v1alpha1.ReasonManagedByMultiKueue, `admission check "multikueue"`)

			k.setWorkload(t, "job", kueue.MultiKueue, []string{admitted})
			k.awaitMessage(t, "job", `cluster "far"`)
			k.waits(t, "job", v1alpha1.ReasonManagedByMultiKueue, `cluster "far"`)
			k.deleteWorkload(t, "job", kueue.Held)
			k.waits(t, "job", v1alpha1.ReasonWaitingForWorkload, "has made no Workload")
			k.setWorkload(t, "job", kueue.Free, []string{admitted})
			k.placed(t, "job", 2)
		})
	}
}

// A new process decides nothing about a job of Kueue's before it has read what Kueue has, nor about jobs that come
// after that job.
func TestKueueIsReadFirst(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		marks  func(*trainer.TrainJob)
	}{
		"OfKueue": {reason: "its check may be there", marks: queued},
		"Other":   {reason: "a job of Kueue's may come before it", marks: func(*trainer.TrainJob) {}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newScene(t).withKueue(t)
			k.Submit(t, "job", test.marks)
			if d, result := k.reconcile(t, "job"); d != nil || result.RequeueAfter != 0 {
				t.Fatalf("the Dispatch is %+v, looked at again after %s, want neither: %s",
					d, result.RequeueAfter, test.reason)
			}
			k.read(t)
			k.setWorkload(t, "job", kueue.Free, []string{admitted})
			k.placed(t, "job", 1)
		})
	}
}

// turning is a Kueue that says something else from some question on.
type turning struct{ left int }

// Of implements Kueue.
func (k *turning) Of(*unstructured.Unstructured) kueue.Answer {
	if k.left--; k.left >= 0 {
		return kueue.Answer{}
	}
	return kueue.Answer{Standing: kueue.MultiKueue, Message: "it has the job"}
}

// Known implements Kueue.
func (k *turning) Known() bool { return true }

// A decision that has not been written is taken back when MultiKueue gets the job, and what it took is free.
func TestDecisionIsTakenBackForMultiKueue(t *testing.T) {
	s := newScene(t)
	s.worker(t, west, cordon)
	s.kueue = &turning{left: 1}
	s.restart(t)
	s.Submit(t, "job", large)
	s.expect(t, "job", v1alpha1.ReasonManagedByMultiKueue)
	s.kueue = nil
	s.reconciler.observer.kueue = nil
	s.Submit(t, "other", large)
	if d, _ := s.reconcile(t, "other"); d.Spec.Cluster != east {
		t.Errorf("the other job is on %q, want east, which is free", d.Spec.Cluster)
	}
}

// A job that MultiKueue has gets no promise of room elsewhere, though it has to leave a worker that is being drained.
func TestNoRoomIsPromisedToAJobOfMultiKueue(t *testing.T) {
	k := newScene(t).withKueue(t)
	k.read(t)
	k.Submit(t, "job", queued, pinned("region=east"))
	k.setWorkload(t, "job", kueue.Free, []string{admitted})
	d := k.placed(t, "job", 1)
	job := k.TrainJob(t, "job")
	old := job.DeepCopy()
	job.Annotations = nil // It may go anywhere now.
	check.Must(t, k.Hub.Admin.Patch(t.Context(), job, client.MergeFrom(old)))
	k.worker(t, east, drain)
	k.setWorkload(t, "job", kueue.MultiKueue, []string{admitted}, multiKueueCheck)
	if answer := k.elsewhere(t, d); answer.Reason != v1alpha1.ReasonManagedByMultiKueue {
		t.Errorf("asked for room elsewhere, the answer is %+v", answer)
	}
}

// With its watches: a job is looked at again when its Workload changes, without any other event.
func TestWorkloadsWakeJobs(t *testing.T) {
	k := newScene(t).withKueue(t)
	k.run(t)
	k.watch.Subscribe(k.reconciler.Reconsider)
	k.read(t)
	k.Submit(t, "job", cpus, queued, pinned("region=west"))
	k.setWorkload(t, "job", kueue.MultiKueue, []string{admitted}, multiKueueCheck)
	k.eventually(t, "job", "with MultiKueue's check", "/ManagedByMultiKueue")
	k.setWorkload(t, "job", kueue.Held, nil)
	k.eventually(t, "job", "when Kueue has taken it back", "/WaitingForWorkload")
	k.setWorkload(t, "job", kueue.Free, []string{admitted})
	k.eventually(t, "job", "when Kueue has admitted it", "west/")
}
