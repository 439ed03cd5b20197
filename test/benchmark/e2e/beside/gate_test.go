// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/kueue"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/trainyard"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// samples has the manifests of docs/kueue.md.
const samples = "../../../../config/samples/kueue/"

// gate is a hub whose Kueue gives quota to two teams, in front of a Trainyard with one worker of two nodes with eight
// GPUs.
type gate struct {
	client.Client
	kueue     *kueue.Kueue
	trainyard *trainyard.Trainyard
	worker    *worker
}

func newGate(t *testing.T) *gate {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	all, err := fleet.Start(ctx, fleet.Options{Workers: 1, GPUs: [][]int64{{8, 8}}, Audit: true})
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, all.Stop()) })
	g := &gate{
		Client: all.Hub.Admin, worker: newWorker(all.Workers[0]),
		kueue: kueue.New(&fleet.Fleet{Hub: all.Hub}, kueue.Tuning{Integrations: kueue.Tuned().Integrations}),
	}
	check.Must(t, g.kueue.Install(ctx))
	check.Must(t, g.kueue.Start(ctx))
	path, err := all.Workers[0].WriteKubeconfig()
	check.Must(t, err)
	workers := []trainyard.Worker{{Name: g.worker.name, Kubeconfig: path}}
	g.trainyard = trainyard.New(all.Hub, workers, trainyard.Options{Args: []string{"--v=1", "--kueue-admission-check"}})
	check.Must(t, g.trainyard.Install(ctx))
	check.Must(t, g.trainyard.Start(ctx))
	check.Must(t, g.trainyard.Connected(ctx))
	await(t, "apply the manifests", func(ctx context.Context) error {
		return all.Hub.Cluster.ApplyFiles(ctx, samples+"two-teams.yaml")
	})
	for _, team := range []string{"team-a", "team-b"} {
		g.condition(t, kueueObject("ClusterQueue", "", team), "Active", "True")
	}
	return g
}

// condition waits until an object has a condition with a status, and returns its message.
func (g *gate) condition(t *testing.T, o *unstructured.Unstructured, kind, status string) (message string) {
	t.Helper()
	await(t, fmt.Sprintf("have %s %s=%s on %s", o.GetKind(), kind, status, o.GetName()), func(ctx context.Context) error {
		if err := g.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, c := range conditions {
			if fields := c.(map[string]any); fields["type"] == kind && fields["status"] == status {
				message, _ = fields["message"].(string)
				return nil
			}
		}
		return fmt.Errorf("its conditions are %v", conditions)
	})
	return message
}

// teamJob is a job of a team. A job without a queue is not Kueue's.
type teamJob struct {
	team, name string
	nodes      int32
	gpus       int64
	priority   string
	queueless  bool
}

func (j teamJob) key() client.ObjectKey { return client.ObjectKey{Namespace: j.team, Name: j.name} }

func (g *gate) submit(t *testing.T, j teamJob) {
	t.Helper()
	job := yard.Job{Namespace: j.team, Name: j.name, Nodes: j.nodes, GPUs: j.gpus}.TrainJob()
	job.Labels = map[string]string{}
	if !j.queueless {
		job.Labels["kueue.x-k8s.io/queue-name"] = "main"
	}
	if j.priority != "" {
		job.Labels["kueue.x-k8s.io/priority-class"] = j.priority
	}
	await(t, "create job "+j.name, func(ctx context.Context) error { return g.Create(ctx, job.DeepCopy()) })
}

// workload returns the Workload of a job.
func (g *gate) workload(ctx context.Context, j teamJob) (*unstructured.Unstructured, error) {
	list := workloadList()
	if err := g.List(ctx, list, client.InNamespace(j.team)); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && owner.Name == j.name {
			return &list.Items[i], nil
		}
	}
	return nil, errors.New("there is no Workload of " + j.name)
}

// checkState is the state of the admission check of a Workload.
type checkState struct {
	state, message string
	retries        int64
}

func stateOf(w *unstructured.Unstructured) checkState {
	var s checkState
	checks, _, _ := unstructured.NestedSlice(w.Object, "status", "admissionChecks")
	for _, c := range checks {
		fields := c.(map[string]any)
		s.state, _ = fields["state"].(string)
		s.message, _ = fields["message"].(string)
		s.retries, _ = fields["retryCount"].(int64)
	}
	return s
}

// checked waits until a job has quota, and its admission check has a state and a message with some words.
func (g *gate) checked(t *testing.T, j teamJob, state, words string) {
	t.Helper()
	await(t, fmt.Sprintf("have %s checked as %s", j.name, state), func(ctx context.Context) error {
		w, err := g.workload(ctx, j)
		if err != nil {
			return err
		}
		if seen := stateOf(w); !isTrue(w, "QuotaReserved") || seen.state != state || !strings.Contains(seen.message, words) {
			return fmt.Errorf("its status is %v", w.Object["status"])
		}
		return nil
	})
}

func (g *gate) dispatch(ctx context.Context, j teamJob) (*v1alpha1.Dispatch, error) {
	d := &v1alpha1.Dispatch{}
	err := g.Get(ctx, j.key(), d)
	return d, err
}

// waits waits until the Dispatch of a job names no worker, for a reason, and returns it.
func (g *gate) waits(t *testing.T, j teamJob, reason string) (found *v1alpha1.Dispatch) {
	t.Helper()
	await(t, "have the Dispatch of "+j.name+" say "+reason, func(ctx context.Context) error {
		d, err := g.dispatch(ctx, j)
		if err != nil {
			return err
		}
		placed := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced)
		if d.Spec.Cluster != "" || placed == nil || placed.Reason != reason {
			return fmt.Errorf("it is on %q: %+v", d.Spec.Cluster, placed)
		}
		found = d
		return nil
	})
	return found
}

// placed waits until a job has the worker, with an attempt.
func (g *gate) placed(t *testing.T, j teamJob, attempt int32) {
	t.Helper()
	await(t, "have "+j.name+" placed", func(ctx context.Context) error {
		d, err := g.dispatch(ctx, j)
		if err == nil && (d.Spec.Cluster == "" || d.Spec.Attempt != attempt || d.Spec.Eviction != nil || d.AttemptEnded()) {
			err = fmt.Errorf("its spec is %+v", d.Spec)
		}
		return err
	})
}

// runs waits until a job is resumed and has its copy, in an attempt.
func (g *gate) runs(t *testing.T, j teamJob, attempt int32) {
	t.Helper()
	g.placed(t, j, attempt)
	await(t, "have a copy of "+j.name, func(ctx context.Context) error {
		job := trainjobs.New()
		if err := g.Get(ctx, j.key(), job); err != nil {
			return err
		}
		if trainjobs.Suspended(job) {
			return errors.New("the job is suspended")
		}
		return g.worker.Get(ctx, j.key(), trainjobs.New())
	})
	w, err := g.workload(t.Context(), j)
	check.Must(t, err)
	if !isTrue(w, "Admitted") {
		t.Errorf("%s has a copy, and its Workload has the status %v", j.name, w.Object["status"])
	}
}

// suspended is true if a job is suspended.
func (g *gate) suspended(t *testing.T, j teamJob) bool {
	t.Helper()
	job := trainjobs.New()
	check.Must(t, g.Get(t.Context(), j.key(), job))
	return trainjobs.Suspended(job)
}

// collected plays the garbage collector of the worker for a copy that is being deleted, and fails while there is one.
func (g *gate) collected(ctx context.Context, j teamJob) error {
	copy := trainjobs.New()
	if err := g.worker.Get(ctx, j.key(), copy); err != nil {
		return client.IgnoreNotFound(err)
	}
	if copy.GetDeletionTimestamp() == nil {
		return errors.New("the copy is there")
	}
	copy.SetFinalizers(nil)
	return errors.Join(errors.New("the copy is being deleted"), client.IgnoreNotFound(g.worker.Update(ctx, copy)))
}

// remove deletes a job, and waits until it has no copy, no Dispatch and no Workload.
func (g *gate) remove(t *testing.T, j teamJob) {
	t.Helper()
	job := trainjobs.New()
	job.SetNamespace(j.team)
	job.SetName(j.name)
	check.Must(t, g.Delete(t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	await(t, "have nothing left of "+j.name, func(ctx context.Context) error {
		if err := g.collected(ctx, j); err != nil {
			return err
		}
		if w, err := g.workload(ctx, j); err == nil { // The hub has no garbage collector.
			return errors.Join(errors.New("it has a Workload"), client.IgnoreNotFound(g.Delete(ctx, w)))
		}
		d, err := g.dispatch(ctx, j)
		if err == nil {
			return fmt.Errorf("it has the Dispatch %+v", d.Spec)
		}
		return client.IgnoreNotFound(err)
	})
}

// step is a part of a test. The next steps build on it.
func (g *gate) step(t *testing.T, name string, run func(t *testing.T)) {
	t.Helper()
	if !t.Run(name, run) {
		t.FailNow()
	}
}

// A job whose queue has the admission check of Trainyard is resumed when a worker holds room for it, and not before.
func TestAdmissionCheck(t *testing.T) {
	g := newGate(t)
	filler := teamJob{team: "team-b", name: "filler", nodes: 2, gpus: 8, queueless: true}
	g.step(t, "RoomAtOnce", func(t *testing.T) {
		job := teamJob{team: "team-a", name: "at-once", gpus: 8}
		g.submit(t, job)
		g.runs(t, job, 1)
		g.checked(t, job, "Ready", g.worker.name)
		g.remove(t, job)
	})
	g.step(t, "Flavors", g.flavors)
	g.step(t, "WaitsForRoom", func(t *testing.T) {
		job := teamJob{team: "team-a", name: "waiting", gpus: 8}
		g.submit(t, filler)
		g.placed(t, filler, 1)
		g.submit(t, job)
		g.checked(t, job, "Pending", "Dispatch team-a/waiting")
		d := g.waits(t, job, v1alpha1.ReasonNoFit)
		if len(d.Status.Explanation) != 1 || !strings.Contains(d.Status.Explanation[0].Message, "nvidia.com/gpu") {
			t.Errorf("the Dispatch explains %+v", d.Status.Explanation)
		}
		if !g.suspended(t, job) {
			t.Error("the job is resumed without a worker")
		}
		g.remove(t, filler)
		g.runs(t, job, 1)
		g.remove(t, job)
	})
	g.step(t, "ManagerRestartedBeforeAdmission", func(t *testing.T) { g.restart(t, filler) })
	g.step(t, "EvictedWhileWaiting", func(t *testing.T) {
		job := teamJob{team: "team-a", name: "stopped", gpus: 8}
		g.submit(t, filler)
		g.placed(t, filler, 1)
		g.submit(t, job)
		g.checked(t, job, "Pending", "NoFit")
		g.activate(t, job, false)
		g.waits(t, job, v1alpha1.ReasonSuspended)
		g.remove(t, filler)
		g.activate(t, job, true)
		g.runs(t, job, 1)
		g.activate(t, job, false)
		await(t, "have the copy deleted", func(ctx context.Context) error { return g.collected(ctx, job) })
		g.waits(t, job, v1alpha1.ReasonSuspended)
		g.activate(t, job, true)
		g.runs(t, job, 2)
		g.remove(t, job)
	})
	g.step(t, "WrongParameters", func(t *testing.T) {
		ac := kueueObject("AdmissionCheck", "", "room")
		g.patch(t, ac, `{"spec":{"parameters":{"apiGroup":"trainyard.dev","kind":"DispatchPolicy","name":"spread"}}}`)
		if message := g.condition(t, ac, "Active", "False"); !strings.Contains(message, "takes no parameters") {
			t.Errorf("the message is %q", message)
		}
		g.condition(t, kueueObject("ClusterQueue", "", "team-a"), "Active", "False")
		g.patch(t, ac, `{"spec":{"parameters":null}}`)
		g.condition(t, ac, "Active", "True")
		g.condition(t, kueueObject("ClusterQueue", "", "team-a"), "Active", "True")
	})
	g.step(t, "TakenOffWhileAJobWaits", func(t *testing.T) {
		job := teamJob{team: "team-a", name: "unchecked", gpus: 8}
		g.submit(t, filler)
		g.placed(t, filler, 1)
		g.submit(t, job)
		g.checked(t, job, "Pending", "NoFit")
		queue := kueueObject("ClusterQueue", "", "team-a")
		g.patch(t, queue, `{"spec":{"admissionChecksStrategy":null}}`)
		await(t, "have the job resumed", func(context.Context) error {
			if g.suspended(t, job) {
				return errors.New("it is suspended")
			}
			return nil
		})
		g.waits(t, job, v1alpha1.ReasonNoFit)
		g.remove(t, filler)
		g.runs(t, job, 1)
		g.patch(t, queue, `{"spec":{"admissionChecksStrategy":{"admissionChecks":[{"name":"room"}]}}}`)
		g.checked(t, job, "Pending", "")
		g.runs(t, job, 1) // What has been admitted goes on.
		g.remove(t, job)
	})
	g.step(t, "QuotaIsGivenBack", func(t *testing.T) {
		// It fits into the quota of both teams, and on no node.
		job := teamJob{team: "team-a", name: "huge", gpus: 16}
		g.submit(t, job)
		g.checked(t, job, "Pending", "NoFit")
		for _, times := range []int64{1, 2} {
			g.evicted(t, job, times)
		}
	})
	for _, name := range []string{"at-once", "flavored", "waiting", "restarted", "unchecked"} {
		if got := g.worker.created(t, name); got != 1 {
			t.Errorf("the worker was given %d copies of %s", got, name)
		}
	}
}

// restart restarts the manager between its answer and Kueue's admission.
func (g *gate) restart(t *testing.T, filler teamJob) {
	t.Helper()
	job := teamJob{team: "team-a", name: "restarted", gpus: 8}
	g.submit(t, filler)
	g.placed(t, filler, 1)
	g.submit(t, job)
	g.checked(t, job, "Pending", "NoFit")
	check.Must(t, g.kueue.Stop())
	check.Must(t, g.kueue.Pause(t.Context()))
	g.remove(t, filler)
	g.checked(t, job, "Ready", g.worker.name)
	g.placed(t, job, 1)
	check.Must(t, g.trainyard.Stop())
	check.Must(t, g.trainyard.Start(t.Context()))
	// It gets what is left. By then the manager has looked at the job.
	later := teamJob{team: "team-b", name: "later", nodes: 2, gpus: 8, queueless: true}
	g.submit(t, later)
	g.waits(t, later, v1alpha1.ReasonNoFit)
	g.placed(t, job, 1)
	if !g.suspended(t, job) || g.worker.created(t, job.name) != 0 {
		t.Errorf("the job was given %d copies before Kueue has admitted it", g.worker.created(t, job.name))
	}
	check.Must(t, g.kueue.Resume(t.Context()))
	check.Must(t, g.kueue.Start(t.Context()))
	g.runs(t, job, 1)
	g.remove(t, later)
	g.remove(t, job)
}

// evicted waits until Kueue has taken the quota of a job back this many times, because its check asked for that.
func (g *gate) evicted(t *testing.T, j teamJob, times int64) {
	t.Helper()
	await(t, fmt.Sprintf("have the quota of %s given back %d times", j.name, times), func(ctx context.Context) error {
		w, err := g.workload(ctx, j)
		if err != nil {
			return err
		}
		if seen := stateOf(w); seen.retries < times {
			return fmt.Errorf("its status is %v", w.Object["status"])
		}
		return nil
	})
}

// activate lets Kueue queue a job, or stop it.
func (g *gate) activate(t *testing.T, j teamJob, active bool) {
	t.Helper()
	await(t, "change the Workload of "+j.name, func(ctx context.Context) error {
		w, err := g.workload(ctx, j)
		if err != nil {
			return err
		}
		return g.Patch(ctx, w, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"active":%t}}`, active)))
	})
}

// patch changes a cluster-scoped object.
func (g *gate) patch(t *testing.T, o *unstructured.Unstructured, change string) {
	t.Helper()
	await(t, "change "+o.GetName(), func(ctx context.Context) error {
		return g.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(change)))
	})
}

// A job that no worker takes within giveUpAfter of its policy ends for Kueue too: its Workload is Finished, its quota is free,
// and a job that has waited for that quota runs. So it is without an admission check, where the job keeps its quota while it
// waits for a worker, and with one, where it stays suspended.
func TestGivenUpJobFreesItsQuota(t *testing.T) {
	g := newGate(t)
	check.Must(t, g.Create(t.Context(), &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: "impatient"}, Spec: v1alpha1.DispatchPolicySpec{
		GiveUpAfter: &metav1.Duration{Duration: giveUpAfter},
	}}))
	queue := kueueObject("ClusterQueue", "", "team-a")
	g.step(t, "WithoutCheck", func(t *testing.T) {
		g.patch(t, queue, `{"spec":{"admissionChecksStrategy":null}}`)
		// It takes the quota of both teams, and fits on no node.
		job := teamJob{team: "team-a", name: "hopeless", gpus: 16}
		g.submit(t, job)
		d := g.waits(t, job, v1alpha1.ReasonNoFit)
		check.Equal(t, false, g.suspended(t, job), "whether the job is suspended, which has quota")
		next := teamJob{team: "team-a", name: "next", gpus: 8}
		g.submit(t, next)
		g.givenUp(t, job, d.Status.Conditions)
		g.runs(t, next, 1)
		g.remove(t, next)
	})
	g.step(t, "BehindTheCheck", func(t *testing.T) {
		g.patch(t, queue, `{"spec":{"admissionChecksStrategy":{"admissionChecks":[{"name":"room"}]}}}`)
		job := teamJob{team: "team-a", name: "checked", gpus: 16}
		g.submit(t, job)
		g.checked(t, job, "Pending", "NoFit")
		d := g.waits(t, job, v1alpha1.ReasonNoFit)
		check.Equal(t, true, g.suspended(t, job), "whether the job is suspended, which has no worker")
		g.givenUp(t, job, d.Status.Conditions)
		next := teamJob{team: "team-a", name: "behind", gpus: 8}
		g.submit(t, next)
		g.runs(t, next, 1)
		g.remove(t, next)
	})
	// The check gives its quota back after a minute, and Kueue gives it to the job again. What the job has waited before that
	// counts, so the two minutes until the check would give the quota back again are not needed.
	g.step(t, "QuotaWasGivenBack", func(t *testing.T) {
		policy := &v1alpha1.DispatchPolicy{}
		check.Must(t, g.Get(t.Context(), client.ObjectKey{Name: "impatient"}, policy))
		policy.Spec.GiveUpAfter.Duration = 130 * time.Second
		check.Must(t, g.Update(t.Context(), policy))
		job := teamJob{team: "team-a", name: "given-back", gpus: 16}
		g.submit(t, job)
		d := g.waits(t, job, v1alpha1.ReasonNoFit)
		g.evicted(t, job, 1)
		g.givenUp(t, job, d.Status.Conditions)
		w, err := g.workload(t.Context(), job)
		check.Must(t, err)
		check.Equal(t, int64(1), stateOf(w).retries, "how often the quota was given back")
	})
	if got := g.worker.created(t, "hopeless") + g.worker.created(t, "checked") + g.worker.created(t, "given-back"); got != 0 {
		t.Errorf("the worker was given %d copies of jobs that were given up", got)
	}
}

// giveUpAfter is how long jobs may wait for a worker.
const giveUpAfter = 15 * time.Second

// givenUp waits until a job is Failed because it was given up, and its Workload is Finished and has no quota. Until then the
// Workload is not Finished.
func (g *gate) givenUp(t *testing.T, j teamJob, waited []metav1.Condition) {
	t.Helper()
	await(t, "have "+j.name+" given up", func(ctx context.Context) error {
		job := trainjobs.New()
		w, err := g.workload(ctx, j)
		if err := errors.Join(err, g.Get(ctx, j.key(), job)); err != nil {
			return err
		}
		failed := trainjobs.Terminal(job)
		if failed == nil {
			if isTrue(w, "Finished") {
				t.Errorf("the Workload of %s is Finished before its job: %v", j.name, w.Object["status"])
			}
			return fmt.Errorf("it waits: %v", waited)
		}
		if failed.Type != "Failed" || failed.Reason != v1alpha1.ReasonGivenUp || !strings.Contains(failed.Message, "giveUpAfter of DispatchPolicy") {
			t.Errorf("%s has ended with %+v", j.name, failed)
		}
		if !isTrue(w, "Finished") {
			return fmt.Errorf("its Workload has the status %v", w.Object["status"])
		}
		return nil
	})
	await(t, "have the quota free", func(ctx context.Context) error {
		queue := kueueObject("ClusterQueue", "", j.team)
		if err := g.Get(ctx, client.ObjectKeyFromObject(queue), queue); err != nil {
			return err
		}
		if reserved := fmt.Sprint(queue.Object["status"].(map[string]any)["flavorsReservation"]); strings.Contains(reserved, "total:16") {
			return errors.New("the queue has reserved " + reserved)
		}
		return nil
	})
}
