// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package older

import (
	"reflect"
	"slices"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/capacity"
	"github.com/trainyard/trainyard/controllers/hub/placement/demand"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/test/check"
)

// trainerJob is a replicated job of the trainer.
func trainerJob(name, containers string) string {
	return `{name: ` + name + `, template: {metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}},
    spec: {template: {spec: {containers: [` + containers + `]}}}}}`
}

func runtimeOf(policy, jobs string) string {
	return `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: runtime}
spec: {` + policy + `template: {spec: {replicatedJobs: [` + jobs + `]}}}
`
}

// TestReplacedResources: what the hub counts for a worker with an older Kubeflow Trainer is what the pods of that release
// request.
func TestReplacedResources(t *testing.T) {
	const (
		torch = "mlPolicy: {numNodes: 2, torch: {}}, "
		mpi   = "mlPolicy: {numNodes: 2, mpi: {numProcPerNode: 1, mpiImplementation: OpenMPI, sshAuthMountPath: /home/u/.ssh, runLauncherAsNode: true}}, "
		gpus  = `{name: node, image: i, resources: {limits: {nvidia.com/gpu: "8"}, requests: {memory: 1Gi}}}`
		side  = `, {name: side, image: s, resources: {requests: {cpu: "1"}}}`
	)
	cpus := map[string]any{"requests": map[string]any{"cpu": "4"}}
	for name, tc := range map[string]struct {
		runtime   string
		resources map[string]any
		// only are the releases that make what the hub counts. Nil: all.
		only []string
	}{
		"CPUOnGPURuntime": {runtime: runtimeOf(torch, trainerJob("node", gpus+side)), resources: cpus},
		"Limits":          {runtime: runtimeOf(torch, trainerJob("node", gpus)), resources: map[string]any{"limits": map[string]any{"nvidia.com/gpu": "4"}}},
		"Both": {runtime: runtimeOf(torch, trainerJob("node", gpus)), resources: map[string]any{
			"limits": map[string]any{"cpu": "8", "nvidia.com/gpu": "1"}, "requests": map[string]any{"cpu": "2", "example.com/nic": "1"},
		}},
		"Empty":         {runtime: runtimeOf(torch, trainerJob("node", gpus)), resources: map[string]any{}},
		"None":          {runtime: runtimeOf(torch, trainerJob("node", gpus))},
		"WithoutPolicy": {runtime: runtimeOf("", trainerJob("node", gpus)), resources: map[string]any{"limits": map[string]any{"example.com/nic": "2"}}},
		"Initializer": {runtime: runtimeOf(torch, `{name: prepare, template: {spec: {template: {spec: {containers: [`+gpus+`]}}}}}, `+
			trainerJob("node", gpus)), resources: cpus},
		// Release 2.0 leaves the nodes as the runtime has them.
		"MPI": {runtime: runtimeOf(mpi, trainerJob("launcher", gpus)+`, {name: node, template: {spec: {template: {spec: {containers: [`+gpus+`]}}}}}`),
			resources: cpus, only: []string{"2.1", "2.2"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := map[string]any{
				"runtimeRef": map[string]any{"name": "runtime", "kind": "ClusterTrainingRuntime", "apiGroup": "trainer.kubeflow.org"},
				"trainer":    map[string]any{"numNodes": int64(2), "image": "own"}, "suspend": false,
			}
			if tc.resources != nil {
				spec["trainer"].(map[string]any)["resourcesPerNode"] = tc.resources
			}
			counted := countedOf(t, tc.runtime, spec)
			for release := range releases {
				t.Run(release, func(t *testing.T) {
					got := ask(t, release, tc.runtime, []map[string]any{spec})[0]
					if got.Error != "" {
						t.Fatal(got.Error)
					}
					made := requestsOf(t, got)
					if tc.only == nil || slices.Contains(tc.only, release) {
						check.Diff(t, made, counted, "requests of pods that the release makes, and the hub counts")
					} else if reflect.DeepEqual(made, counted) {
						t.Error("the release makes the same: say so in docs/design.md")
					}
				})
			}
		})
	}
}

// countedOf returns what the hub counts for a pod of each replicated job on a worker that replaces resources.
func countedOf(t *testing.T, runtimeText string, spec map[string]any) map[string]map[string]string {
	t.Helper()
	deriver, err := demand.NewDeriver(t.Context(), clientWith(t, runtimeText))
	check.Must(t, err)
	job := &trainer.TrainJob{}
	check.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(trainJob(0, spec), job, true))
	of, err := deriver.Of(t.Context(), job)
	check.Must(t, err)
	podSets, _ := demand.Unmerged(of.PodSets, dispatch.Replaces)
	counted := map[string]map[string]string{}
	for i := range podSets {
		counted[podSets[i].Name] = texts(podSets[i].Requests)
	}
	return counted
}

// requestsOf returns what a pod of each replicated job of the JobSet in an answer requests, with the defaults of the API
// server.
func requestsOf(t *testing.T, a answer) map[string]map[string]string {
	t.Helper()
	jobSet := &jobsetv1alpha2.JobSet{}
	check.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(a.jobSet(), jobSet))
	made := map[string]map[string]string{}
	for i := range jobSet.Spec.ReplicatedJobs {
		pod := jobSet.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec
		for j := range pod.Containers {
			resources := &pod.Containers[j].Resources
			for name, limit := range resources.Limits {
				if _, requested := resources.Requests[name]; requested {
					continue
				}
				if resources.Requests == nil {
					resources.Requests = corev1.ResourceList{}
				}
				resources.Requests[name] = limit
			}
		}
		made[jobSet.Spec.ReplicatedJobs[i].Name] = texts(capacity.PodRequests(&corev1.Pod{Spec: pod}))
	}
	return made
}

func texts(list corev1.ResourceList) map[string]string {
	all := map[string]string{}
	for name, amount := range list {
		all[string(name)] = amount.String()
	}
	return all
}
