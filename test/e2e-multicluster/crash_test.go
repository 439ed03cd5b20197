// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/test/yard"
)

// Fault: the manager is killed (SIGKILL) again and again while jobs come, run and end. Every job ends, and no job ever
// has a second copy. The tests of test/faults kill it at every write, and the soak more often.
func TestManagerKilledUnderLoad(t *testing.T) {
	const jobs, kills = 18, 3
	copies := watchCreations(t)
	var submitted []*trainer.TrainJob
	submitSome := func(until int) {
		for len(submitted) < until {
			submitted = append(submitted, submit(t, yard.Job{Name: fmt.Sprintf("crash-%d", len(submitted)), GPUs: 1, RunFor: "1s"}))
		}
	}
	leader := ""
	for kill := range kills {
		// Each manager is killed at another point of the jobs' lives: its work in a round begins when it leads.
		submitSome((kill*2 + 1) * jobs / (2 * kills))
		wait := time.After(time.Duration(kill) * 300 * time.Millisecond)
		submitSome((kill + 1) * jobs / kills)
		leader = nextLeader(t, leader)
		<-wait
		if err := y.Managers.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	for _, job := range submitted {
		ends(t, job, trainer.TrainJobComplete)
	}

	for _, job := range submitted {
		y.Eventually(t, func(g gomega.Gomega) { g.Expect(copies.of(job.Name)).NotTo(gomega.BeEmpty(), "the watch is late") })
		if got := copies.of(job.Name); len(got) != 1 {
			t.Errorf("%s has had copies %v, want exactly one", job.Name, got)
		}
	}
}

// creations are the TrainJobs that were created on the workers, by name, as "worker UID". They come from watches. The
// audit log is not enough: if a manager is killed in the middle of a request, neither the manager nor the log has the
// answer, although the API server may have created the TrainJob.
type creations struct {
	mu   sync.Mutex
	seen map[string]map[string]bool // under mu
}

// watchCreations watches from now on, until the test ends.
func watchCreations(t *testing.T) *creations {
	t.Helper()
	c := &creations{seen: map[string]map[string]bool{}}
	for name, worker := range y.Yard.Workers {
		watcher, err := client.NewWithWatch(worker.Config, client.Options{Scheme: y.Workers[name].Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		events, err := watcher.Watch(t.Context(), &trainer.TrainJobList{}, client.InNamespace(metav1.NamespaceDefault))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(events.Stop)
		go func() {
			for event := range events.ResultChan() {
				if job, ok := event.Object.(*trainer.TrainJob); ok {
					c.add(job.Name, name+" "+string(job.UID))
				}
			}
		}()
	}
	return c
}

func (c *creations) add(job, creation string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[job] == nil {
		c.seen[job] = map[string]bool{}
	}
	c.seen[job][creation] = true
}

func (c *creations) of(job string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.seen[job]))
}

// nextLeader waits until another manager leads than before, and returns it.
func nextLeader(t *testing.T, before string) string {
	t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "trainyard-system", Name: "manager.trainyard.dev"}}
	y.Eventually(t, func(g gomega.Gomega) {
		holder := current(t.Context(), g, y.Hub, lease).Spec.HolderIdentity
		g.Expect(holder).NotTo(gomega.HaveValue(gomega.BeElementOf("", before)))
	})
	return *lease.Spec.HolderIdentity
}
