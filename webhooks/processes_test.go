// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks_test

import (
	"slices"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A runtime has four GPUs in each node. The torch policy counts processes from resourcesPerNode of the job alone: hub and
// worker warn of GPUs without a process.
func TestGPUsWithoutProcesses(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	uses := e.namespacedRuntime(t, ns, "four-gpus", func(spec *trainer.TrainingRuntimeSpec) {
		podOfNode(spec).Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("4")}
	})
	asks := func(resources corev1.ResourceList) func(*trainer.TrainJob) {
		return func(j *trainer.TrainJob) {
			j.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Limits: resources}
		}
	}
	memory := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Gi")}
	tests := map[string]struct {
		reason  string
		changes []func(*trainer.TrainJob)
		want    string
	}{
		"Memory": {
			reason: "one process for four GPUs", changes: []func(*trainer.TrainJob){asks(memory)},
			want: "each node has 4 GPUs, and torchrun's number of processes there is 1:",
		},
		"CPU": {
			reason:  "a process for each core",
			changes: []func(*trainer.TrainJob){asks(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("12")})},
			want:    "processes there is 12:",
		},
		"Nothing": {reason: "the GPUs of the runtime count"},
		"GPUs": {
			reason: "torchrun counts the GPUs",
			changes: []func(*trainer.TrainJob){asks(corev1.ResourceList{
				corev1.ResourceMemory: resource.MustParse("64Gi"), "nvidia.com/gpu": resource.MustParse("4"),
			})},
		},
		"OneProcess": {
			reason:  "the user has decided so",
			changes: []func(*trainer.TrainJob){asks(memory), func(j *trainer.TrainJob) { j.Spec.Trainer.NumProcPerNode = new(int32(1)) }},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			j := job(ns, strings.ToLower(name), append([]func(*trainer.TrainJob){uses}, tc.changes...)...)
			c, onWorker := e.withWarnings(t)
			if err := c.Create(t.Context(), j, client.DryRunAll); err != nil { // Sets the defaults of the CRD.
				t.Fatal(err)
			}
			j.Spec.ManagedBy = new("kueue.x-k8s.io/multikueue")
			response := e.hub(t, knownToHub{}).validator.Handle(t.Context(), request(t, nil, j))
			if !response.Allowed {
				t.Errorf("the hub refuses the job: %v", response.Result)
			}
			for where, warnings := range map[string][]string{"worker": onWorker.All(), "hub": response.Warnings} {
				isMeant := func(w string) bool { return strings.Contains(w, "numProcPerNode") }
				if found := slices.ContainsFunc(warnings, isMeant); found != (tc.want != "") {
					t.Errorf("%s, the %s warns: %q", tc.reason, where, warnings)
				}
				if tc.want != "" && !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, tc.want) }) {
					t.Errorf("%s, the %s warns: %q, want %q", tc.reason, where, warnings, tc.want)
				}
			}
		})
	}
}
