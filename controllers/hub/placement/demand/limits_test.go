// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// jobOf returns a job and its runtime.
func jobOf(t testing.TB, runtime string, resources corev1.ResourceList) (*trainer.TrainJob, *trainer.TrainingRuntimeSpec) {
	t.Helper()
	spec := &trainer.TrainingRuntimeSpec{}
	check.Must(t, yaml.UnmarshalStrict([]byte(runtime), spec))
	job := &trainer.TrainJob{Spec: trainer.TrainJobSpec{
		RuntimeRef: trainer.RuntimeRef{Name: "r", Kind: new("ClusterTrainingRuntime"), APIGroup: new("trainer.kubeflow.org")},
	}}
	if resources != nil {
		job.Spec.Trainer = &trainer.Trainer{ResourcesPerNode: &corev1.ResourceRequirements{Requests: resources}}
	}
	return job, spec
}

func resourceNames(count int) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := range count {
		l[corev1.ResourceName(fmt.Sprintf("example.com/r%d", i))] = resource.MustParse("1")
	}
	return l
}

// A job may need as much as is reasonable. For a larger job the error says what is too large.
func TestLimits(t *testing.T) {
	d := newTestDeriver(t)
	many := func(spec *trainer.TrainingRuntimeSpec, replicatedJobs int) {
		jobs := &spec.Template.Spec.ReplicatedJobs
		for i := range replicatedJobs - 1 {
			next := (*jobs)[0].DeepCopy()
			next.Name = fmt.Sprintf("other-%d", i)
			*jobs = append(*jobs, *next)
		}
	}
	for name, test := range map[string]struct {
		reason    string
		resources int
		change    func(*trainer.TrainJob, *trainer.TrainingRuntimeSpec)
		want      string
	}{
		"Resources": {reason: "as many as are counted", resources: MaxResources},
		"TooManyResources": {
			reason: "one more", resources: MaxResources + 1,
			want: "the job is too large: the containers request 129 different resources (spec.trainer.resourcesPerNode, or resources in the runtime), " +
				"at most 128 are counted",
		},
		"PodSets": {
			reason: "as many as are counted", change: func(_ *trainer.TrainJob, spec *trainer.TrainingRuntimeSpec) { many(spec, MaxPodSets) },
		},
		"TooManyPodSets": {
			reason: "one more", change: func(_ *trainer.TrainJob, spec *trainer.TrainingRuntimeSpec) { many(spec, MaxPodSets+1) },
			want: "the job is too large: the runtime has 257 replicated jobs, at most 256 are counted",
		},
		"Pods": {
			reason: "as many as are counted",
			change: func(job *trainer.TrainJob, _ *trainer.TrainingRuntimeSpec) {
				job.Spec.Trainer = &trainer.Trainer{NumNodes: new(int32(MaxPods))}
			},
		},
		"TooManyPods": {
			reason: "one more",
			change: func(job *trainer.TrainJob, _ *trainer.TrainingRuntimeSpec) {
				job.Spec.Trainer = &trainer.Trainer{NumNodes: new(int32(MaxPods + 1))}
			},
			want: "the job is too large: spec.trainer.numNodes, replicas and parallelism make 150001 pods, at most 150000 are counted",
		},
		"Tolerations": {
			reason: "more than the Trainer's patches admit",
			change: func(_ *trainer.TrainJob, spec *trainer.TrainingRuntimeSpec) {
				pod := &spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec
				for i := range 200 {
					pod.Tolerations = append(pod.Tolerations, corev1.Toleration{Key: fmt.Sprintf("example.com/%d", i), Operator: corev1.TolerationOpExists})
				}
			},
		},
		"TooManyTolerations": {
			reason: "empty ones take no room in JSON, and much in memory",
			change: func(_ *trainer.TrainJob, spec *trainer.TrainingRuntimeSpec) {
				pod := &spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec
				pod.Tolerations = make([]corev1.Toleration, MaxSelectors+1)
			},
			want: "the job is too large: its pods have 409", // The runtime has others.
		},
		"TooManyBytes": {
			reason: "an affinity without end",
			change: func(_ *trainer.TrainJob, spec *trainer.TrainingRuntimeSpec) {
				pod := &spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec
				term := &pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0]
				term.Values = slices.Repeat([]string{strings.Repeat("a", 60)}, 3000)
			},
			want: "take 189", // The message goes on.
		},
	} {
		t.Run(name, func(t *testing.T) {
			var resources corev1.ResourceList
			if test.resources > 0 {
				resources = resourceNames(test.resources)
			}
			job, spec := jobOf(t, torch, resources)
			if test.change != nil {
				test.change(job, spec)
			}
			demand, err := d.derive(job, spec)
			if test.want == "" {
				if err != nil {
					t.Errorf("derive: %v, %s", err, test.reason)
				}
				return
			}
			if Decision(err) == nil || Decision(err).Reason != v1alpha1.ReasonTooLarge || !strings.Contains(err.Error(), test.want) {
				t.Errorf("derive: %v, want %q: %s", err, test.want, test.reason)
			}
			if demand.PodSets != nil {
				t.Errorf("a demand that is too large has %d PodSets, which would be recorded", len(demand.PodSets))
			}
		})
	}
}

// Some fields fit into no Dispatch. The error comes before the write, and says what to change in the runtime.
func TestForm(t *testing.T) {
	d := newTestDeriver(t)
	for name, test := range map[string]struct {
		reason string
		change func(*jobsetv1alpha2.ReplicatedJob)
		want   string
	}{
		"Name": {
			reason: "it is a part of the names of pods", change: func(job *jobsetv1alpha2.ReplicatedJob) { job.Name = strings.Repeat("n", 64) },
			want: `name of replicated job "` + strings.Repeat("n", 64) + `": must be no more than 63 `,
		},
		"Role": {
			reason: "it is a label of Jobs",
			change: func(job *jobsetv1alpha2.ReplicatedJob) {
				job.Template.Labels["trainer.kubeflow.org/trainjob-ancestor-step"] = strings.Repeat("r", 64)
			},
			want: `label trainer.kubeflow.org/trainjob-ancestor-step of replicated job "node": must be no more than 63 `,
		},
		"Affinity": {
			reason: "the API server takes no pod with it",
			change: func(job *jobsetv1alpha2.ReplicatedJob) {
				job.Template.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms = []corev1.NodeSelectorTerm{}
			},
			want: `node affinity of replicated job "node": requiredDuringSchedulingIgnoredDuringExecution has no nodeSelectorTerms: give one, or take the ` +
				"affinity out",
		},
	} {
		t.Run(name, func(t *testing.T) {
			job, spec := jobOf(t, torch, nil)
			test.change(&spec.Template.Spec.ReplicatedJobs[0])
			if _, err := d.derive(job, spec); err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("derive: %v, want %q: %s", err, test.want, test.reason)
			}
		})
	}
}
