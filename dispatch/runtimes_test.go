// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// With spec.runtime: Same a worker takes a job only if its runtime is known to be the hub's in the version that was
// counted, or will be.
func TestRuntimeObjection(t *testing.T) {
	key := types.NamespacedName{Namespace: "team", Name: "torch"}
	listed := NewRuntimes(nil, true)
	with := func(comparison Comparison) *Runtimes {
		return NewRuntimes(map[types.NamespacedName]Comparison{key: comparison}, true)
	}
	differing := Comparison{Version: "a.1", State: v1alpha1.RuntimeDiffers, Paths: []string{"spec.x", "spec.y"}}
	outdated := differing
	outdated.Outdated = true
	for name, tc := range map[string]struct {
		reason     string
		runtimes   *Runtimes
		propagated bool
		want       string
	}{
		"Nothing":      {reason: "the manager has just started", want: "not known yet", propagated: true},
		"NotListed":    {reason: "it may be there", runtimes: NewRuntimes(nil, false), want: "not known yet", propagated: true},
		"Missing":      {reason: "the copy brings the hub's", runtimes: listed, propagated: true},
		"MissingStays": {reason: "nobody may bring it", runtimes: listed, want: "has no TrainingRuntime team/torch"},
		"Pending":      {reason: "it has changed on the worker", runtimes: with(Comparison{}), want: "not known yet", propagated: true},
		"OtherVersion": {reason: "it has changed on the hub", runtimes: with(Comparison{Version: "a.2"}), want: "not known yet", propagated: true},
		"Equal":        {reason: "compared, even if others are not", runtimes: NewRuntimes(map[types.NamespacedName]Comparison{key: {Version: "a.1"}}, false)},
		"Differs":      {reason: "the first paths are named", runtimes: with(differing), want: "not the hub's: it differs in spec.x, spec.y", propagated: true},
		"Outdated":     {reason: "it is replaced before the copy is made", runtimes: with(outdated), propagated: true},
		"OutdatedStays": {
			reason: "nobody may replace it", runtimes: with(outdated), want: "an earlier version",
		},
		"Unsupported": {
			reason: "the words name the field", propagated: true, want: `unknown field "spec.z"`,
			runtimes: with(Comparison{Version: "a.1", State: v1alpha1.RuntimeUnsupported, Outdated: true, Message: `unknown field "spec.z"`}),
		},
		"Unknown": {
			reason: "the hub may not compare", propagated: true, want: "cannot be compared with the hub's: forbidden",
			runtimes: with(Comparison{Version: "a.1", State: v1alpha1.RuntimeUnknown, Message: "forbidden"}),
		},
		"Reported": {reason: "a status without it", runtimes: reportedRuntimes(nil)},
		"ReportedElse": {reason: "a status has no versions", want: "differs in spec.x", runtimes: reportedRuntimes([]v1alpha1.WorkerRuntime{{
			Kind: "TrainingRuntime", Namespace: "team", Name: "torch", State: v1alpha1.RuntimeDiffers, Paths: []string{"spec.x"},
		}})},
	} {
		t.Run(name, func(t *testing.T) {
			got := tc.runtimes.objection(&RequiredRuntime{Key: key, Version: "a.1", Propagated: tc.propagated})
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("%s: the objection is %q, want %q", tc.reason, got, tc.want)
			}
			if got := tc.runtimes.objection(nil); got != "" {
				t.Errorf("%s: a job that takes any runtime: %q", tc.reason, got)
			}
		})
	}
}

// What a status says of runtimes is known again when each is compared, or is known to be gone.
func TestSettles(t *testing.T) {
	key := types.NamespacedName{Name: "torch"}
	status := []v1alpha1.WorkerRuntime{{Kind: "ClusterTrainingRuntime", Name: "torch", State: v1alpha1.RuntimeDiffers}}
	with := func(comparison Comparison, listed bool) *Runtimes {
		return NewRuntimes(map[types.NamespacedName]Comparison{key: comparison}, listed)
	}
	for name, tc := range map[string]struct {
		runtimes *Runtimes
		status   []v1alpha1.WorkerRuntime
		want     bool
	}{
		"NothingSaid": {want: true},
		"Nothing":     {status: status},
		"NotListed":   {status: status, runtimes: NewRuntimes(nil, false)},
		"Gone":        {status: status, runtimes: NewRuntimes(nil, true), want: true},
		"Pending":     {status: status, runtimes: with(Comparison{}, true)},
		"Compared":    {status: status, runtimes: with(Comparison{Version: "a.1"}, false), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.runtimes.Settles(tc.status); got != tc.want {
				t.Errorf("Settles = %t, want %t", got, tc.want)
			}
		})
	}
}

// The filter says why, and a worker with the hub's runtime gets the job although another scores higher.
func TestDecideByRuntime(t *testing.T) {
	key := types.NamespacedName{Name: "torch"}
	worker := func(name v1alpha1.ClusterName, comparison Comparison) Worker {
		return Worker{Name: name, Nodes: NewNodes(nil), Runtimes: NewRuntimes(map[types.NamespacedName]Comparison{key: comparison}, true)}
	}
	workers := []Worker{
		worker("east", Comparison{Version: "a.1", State: v1alpha1.RuntimeDiffers, Paths: []string{"spec.mlPolicy.numNodes"}}),
		worker("west", Comparison{Version: "a.1"}),
	}
	job := Job{UID: "1", RequiredRuntime: &RequiredRuntime{Key: key, Version: "a.1", Propagated: true}}
	if got := Decide(job, nil, workers); got.Cluster != "west" {
		t.Errorf("the job gets worker %q (%s), want west", got.Cluster, got.Message)
	}
	lines := Explain(job, nil, workers)
	if lines[0].Reason != v1alpha1.ReasonRuntimeDiffers || !strings.Contains(lines[0].Message, "spec.mlPolicy.numNodes") {
		t.Errorf("the explanation of east is %+v", lines[0])
	}
	if RemedyOf(v1alpha1.ReasonRuntimeDiffers) != ChangedWorker {
		t.Error("the runtime of a worker is changed by its admin")
	}
	if got := Decide(job, nil, workers[:1]); got.Cluster != "" || !strings.Contains(got.Message, "differs in spec.mlPolicy.numNodes") {
		t.Errorf("without west the job gets %q: %s", got.Cluster, got.Message)
	}
	job.RequiredRuntime = nil
	if got := Decide(job, nil, workers[:1]); got.Cluster != "east" {
		t.Errorf("a job that takes any runtime waits: %s", got.Message)
	}
}

// A demand depends on how many pods there are, what they request and where they may run, and not on what runs in them.
func TestDemandPaths(t *testing.T) {
	const (
		job = "spec.template.spec.replicatedJobs[0].template"
		pod = job + ".spec.template.spec"
	)
	for path, want := range map[string]bool{
		"spec": true, "spec.template": true, "spec.mlPolicy": true, "spec.mlPolicy.numNodes": true, "spec.mlPolicy.mpi.numProcPerNode": true,
		"spec.podGroupPolicy": false, "spec.template.spec.replicatedJobs": true, "spec.template.spec.replicatedJobs[1]": true,
		"spec.template.spec.replicatedJobs[0].replicas": true, "spec.template.spec.replicatedJobs[0].name": true,
		"spec.template.spec.replicatedJobs[0].dependsOn[0].status": true, "spec.template.spec.network": false,
		"spec.template.spec.replicatedJobs[0].template.spec.parallelism": true, "spec.template.spec.replicatedJobs[0].template.spec.backoffLimit": false,
		pod: true, pod + ".nodeSelector": true, pod + ".nodeSelector['a/b']": true, pod + ".tolerations[0].key": true, pod + ".affinity.nodeAffinity": true,
		pod + ".containers[1]": true, pod + ".initContainers": true, pod + ".containers[0].resources.requests['nvidia.com/gpu']": true,
		pod + ".containers[0].ports[0].hostPort": true, pod + ".containers[0].image": false, pod + ".containers[0].env[0].value": false,
		pod + ".volumes[0].name": false, pod + ".runtimeClassName": true, "spec.template.spec.replicatedJobs[0].template.metadata.labels.spec": true,
		pod + ".containers[0].name": true, pod + ".initContainers[0].name": true, pod + ".containers[0].ports[0].name": true,
		pod + ".containers[0].env[0].name": false, pod + ".initContainers[0].restartPolicy": true, pod + ".restartPolicy": false,
		pod + ".overhead['cpu']": true, pod + ".hostNetwork": true, pod + ".hostname": false, pod + ".terminationGracePeriodSeconds": true,
		job + ".metadata": true, job + ".metadata.labels": true, job + ".metadata.labels['trainer.kubeflow.org/trainjob-ancestor-step']": true,
		job + ".metadata.labels['team']": false, job + ".spec.template.metadata.labels": false,
	} {
		check.Equal(t, want, ChangesDemand(path), "whether a demand depends on %s", path)
	}
}
