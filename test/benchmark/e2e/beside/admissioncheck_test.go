// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

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
	check(t, g.kueue.Stop())
	check(t, g.kueue.Pause(t.Context()))
	g.remove(t, filler)
	g.checked(t, job, "Ready", g.worker.name)
	g.placed(t, job, 1)
	check(t, g.trainyard.Stop())
	check(t, g.trainyard.Start(t.Context()))
	// It gets what is left. By then the manager has looked at the job.
	later := teamJob{team: "team-b", name: "later", nodes: 2, gpus: 8, queueless: true}
	g.submit(t, later)
	g.waits(t, later, v1alpha1.ReasonNoFit)
	g.placed(t, job, 1)
	if !g.suspended(t, job) || g.worker.created(t, job.name) != 0 {
		t.Errorf("the job was given %d copies before Kueue has admitted it", g.worker.created(t, job.name))
	}
	check(t, g.kueue.Resume(t.Context()))
	check(t, g.kueue.Start(t.Context()))
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
