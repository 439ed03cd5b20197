// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Two teams share the GPUs. A team borrows what the other team does not use, and gives it back: the quota is free when
// the copy of the preempted job is gone, and not before. The preempted job comes back when there is quota again.
func TestTwoTeams(t *testing.T) {
	g := newGate(t)
	lender := teamJob{team: "team-b", name: "lender", gpus: 8}
	order := watchOrder(t, g, lender)
	borrowers := []teamJob{{team: "team-a", name: "own", gpus: 8}, {team: "team-a", name: "borrowed", gpus: 8}}
	for _, job := range borrowers {
		g.submit(t, job)
		g.runs(t, job, 1)
		g.begins(t, job)
	}
	g.submit(t, lender)
	victim := g.preempted(t, borrowers)
	await(t, "have the copy of "+victim.name+" stopped", func(ctx context.Context) error {
		copy := trainjobs.New()
		if err := g.worker.Get(ctx, victim.key(), copy); err != nil {
			return err
		}
		if copy.GetDeletionTimestamp() == nil {
			return errors.New("nobody deletes it")
		}
		return nil
	})
	w, err := g.workload(t.Context(), victim)
	check(t, err)
	if !isTrue(w, "QuotaReserved") {
		t.Error("the quota is free while the copy has pods")
	}
	order.copyGoes()
	await(t, "have the copy gone", func(ctx context.Context) error { return g.collected(ctx, victim) })
	g.runs(t, lender, 1)
	order.right(t)
	g.waits(t, victim, v1alpha1.ReasonSuspended)
	g.remove(t, lender)
	g.runs(t, victim, 2)
	for _, job := range append(borrowers, lender) {
		want := 1
		if job == victim {
			want = 2
		}
		if got := g.worker.created(t, job.name); got != want {
			t.Errorf("the worker was given %d copies of %s, want %d", got, job.name, want)
		}
	}
}

// begins plays the worker's controller: the copy of a job has an active pod. It waits until the hub knows.
func (g *gate) begins(t *testing.T, j teamJob) {
	t.Helper()
	const status = `{"status":{"jobsStatus":[{"name":"node","ready":1,"active":1,"succeeded":0,"failed":0,"suspended":0}]}}`
	await(t, "have a pod of "+j.name, func(ctx context.Context) error {
		copy := trainjobs.New()
		copy.SetNamespace(j.team)
		copy.SetName(j.name)
		return g.worker.Status().Patch(ctx, copy, client.RawPatch("application/merge-patch+json", []byte(status)))
	})
	await(t, "have the hub know of the pod of "+j.name, func(ctx context.Context) error {
		job := trainjobs.New()
		if err := g.Get(ctx, j.key(), job); err != nil {
			return err
		}
		if jobs, _, _ := unstructured.NestedSlice(job.Object, "status", "jobsStatus"); len(jobs) == 0 {
			return fmt.Errorf("the job's status is %v", job.Object["status"])
		}
		return nil
	})
}

// preempted waits until Kueue has preempted one of some jobs, and returns it.
func (g *gate) preempted(t *testing.T, jobs []teamJob) (victim teamJob) {
	t.Helper()
	await(t, "have a job preempted", func(ctx context.Context) error {
		for _, job := range jobs {
			w, err := g.workload(ctx, job)
			if err != nil {
				return err
			}
			if isTrue(w, "Preempted") {
				victim = job
				return nil
			}
		}
		return errors.New("none is")
	})
	return victim
}

// order notes whether a job got quota before the copy of another job was let go.
type order struct {
	mark   chan struct{}
	result chan error
}

// watchOrder watches when a job gets quota.
func watchOrder(t *testing.T, g *gate, j teamJob) *order {
	t.Helper()
	o := &order{mark: make(chan struct{}), result: make(chan error, 1)}
	reader, ok := g.Client.(client.WithWatch)
	if !ok {
		t.Fatal("the client of the hub cannot watch")
	}
	follow(t, reader, func(_ watch.EventType, w *unstructured.Unstructured) {
		owner := metav1.GetControllerOf(w)
		if owner == nil || owner.Name != j.name || !isTrue(w, "QuotaReserved") {
			return
		}
		var err error
		select {
		case <-o.mark:
		default:
			err = fmt.Errorf("%s got quota before the copy was gone: %v", j.name, w.Object["status"])
		}
		select {
		case o.result <- err:
		default: // The first event counts.
		}
	})
	return o
}

// copyGoes notes that the copy is let go now.
func (o *order) copyGoes() { close(o.mark) }

// right expects that the job got quota after that.
func (o *order) right(t *testing.T) {
	t.Helper()
	select {
	case err := <-o.result:
		check(t, err)
	case <-t.Context().Done():
		t.Fatal("nobody has seen the quota")
	}
}

// follow calls see for each Workload of a cluster that is added or changes.
func follow(t *testing.T, c client.WithWatch, see func(watch.EventType, *unstructured.Unstructured)) {
	t.Helper()
	events, err := c.Watch(t.Context(), workloadList())
	check(t, err)
	t.Cleanup(events.Stop)
	go func() {
		for event := range events.ResultChan() {
			if w, ok := event.Object.(*unstructured.Unstructured); ok {
				see(event.Type, w)
			}
		}
	}()
}
