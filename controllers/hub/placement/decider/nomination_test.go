// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"testing"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
)

// The room of a job that somebody else brings to a worker is kept whatever happens to a TrainJob of the same name.
func TestRoomOfNominationIsKept(t *testing.T) {
	d := startedDecider()
	job := &queue.Job{Job: dispatch.Job{Namespace: "default", Name: "job", UID: "workload"}}
	worker := func() v1alpha1.ClusterName {
		if p := d.jobs.promised["workload"]; p != nil {
			return p.worker
		}
		return ""
	}
	if d.helps(func() { d.Occupy(job, "east") }); worker() != "east" {
		t.Fatalf("the room is on %q", worker())
	}
	d.enter(t, queue.Job{Job: dispatch.Job{Namespace: "default", Name: "job", UID: "trainjob"}, Class: "class", Attempt: 1})
	d.Leave(job.Key())
	d.Forget("trainjob", 1)
	if worker() != "east" {
		t.Error("the end of a TrainJob of this name has given the room back")
	}
	if d.helps(func() { d.Occupy(job, "east") }) {
		t.Error("to occupy the same room again helps somebody")
	}
	if !d.helps(func() { d.Occupy(job, "west") }) || worker() != "west" {
		t.Errorf("the room is on %q, and nobody is told of the room on east", worker())
	}
	if len(d.jobs.on("west")) != 1 || len(d.jobs.on("east")) != 0 {
		t.Errorf("counted on west are %v, on east %v", d.jobs.on("west"), d.jobs.on("east"))
	}
	if !d.helps(func() { d.ReleasePromise("workload") }) || worker() != "" {
		t.Error("the room is not given back")
	}
}
