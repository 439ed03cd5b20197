// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/test/yard"
)

// Fault: the manager is killed (SIGKILL) again and again while jobs come, run and end. Every job ends, and none has ever had a
// second copy: the workers' audit logs have every creation.
func TestManagerKilledUnderLoad(t *testing.T) {
	const jobs, kills = 60, 6
	offsets := map[string]int64{}
	for name, worker := range y.Workers {
		_, offsets[name] = requests(t, worker, hubUser, 0)
	}
	var submitted []*trainer.TrainJob
	submitSome := func(until int) {
		for len(submitted) < until {
			submitted = append(submitted, submit(t, yard.Job{Name: fmt.Sprintf("crash-%d", len(submitted)), GPUs: 1, RunFor: "1s"}))
		}
	}
	leader := ""
	for kill := range kills {
		// Each life of the manager is cut at another point of the jobs' lives: what it does in a round begins when it leads.
		submitSome((kill*2 + 1) * jobs / (2 * kills))
		wait := time.After(time.Duration(kill) * 300 * time.Millisecond)
		submitSome((kill + 1) * jobs / kills)
		leader = nextLeader(t, leader)
		<-wait
		if err := y.Manager.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := y.StartManager(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, job := range submitted {
		ends(t, job, trainer.TrainJobComplete)
	}

	copies := map[string][]string{}
	for name, worker := range y.Workers {
		events, _ := requests(t, worker, hubUser, offsets[name])
		for _, event := range events {
			if event.Verb == "create" && event.ObjectRef.Resource == "trainjobs" && event.ResponseStatus.Code == 201 {
				copies[event.ObjectRef.Name] = append(copies[event.ObjectRef.Name], name)
			}
		}
	}
	for _, job := range submitted {
		if len(copies[job.Name]) != 1 {
			t.Errorf("%s has had copies on %v, want exactly one", job.Name, copies[job.Name])
		}
	}
}

// nextLeader waits until another manager than the one before leads, and returns who.
func nextLeader(t *testing.T, before string) string {
	t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "trainyard-system", Name: "manager.trainyard.dev"}}
	eventually(t, func(g gomega.Gomega) {
		holder := current(t.Context(), g, hub, lease).Spec.HolderIdentity
		g.Expect(holder).NotTo(gomega.HaveValue(gomega.BeElementOf("", before)))
	})
	return *lease.Spec.HolderIdentity
}
