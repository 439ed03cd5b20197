// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

const torch = `
mlPolicy: {numNodes: 1, torch: {}}
template:
  spec:
    replicatedJobs:
    - name: node
      template:
        metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
        spec: {template: {spec: {
          nodeSelector: {zone: a},
          tolerations: [{key: gpu, operator: Exists}],
          affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
            {matchExpressions: [{key: arch, operator: In, values: [hopper]}]}]}}},
          containers: [{name: node, image: i}]}}}
`

const tuned = `
mlPolicy: {numNodes: 2, torch: {}}
template:
  spec:
    replicatedJobs:
    - name: dataset-initializer
      template:
        metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: dataset-initializer}}
        spec: {template: {spec: {containers: [{name: dataset-initializer, image: i, resources: {requests: {cpu: "2"}}}]}}}
    - name: node
      dependsOn: [{name: dataset-initializer, status: Complete}]
      template:
        metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
        spec: {template: {spec: {containers: [
          {name: node, image: i, resources: {limits: {nvidia.com/gpu: 2}, requests: {memory: 1Gi}}},
          {name: sidecar, image: i, resources: {requests: {cpu: 500m}}}]}}}
`

const mpi = `
mlPolicy: {numNodes: 1, mpi: {numProcPerNode: 1, mpiImplementation: OpenMPI, sshAuthMountPath: /home/u/.ssh, runLauncherAsNode: true}}
template:
  spec:
    replicatedJobs:
    - name: launcher
      template:
        metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
        spec: {template: {spec: {containers: [{name: node, image: i}]}}}
    - name: node
      template:
        spec: {template: {spec: {containers: [{name: node, image: i}]}}}
`

const workersWithReplicas = `
mlPolicy: {numNodes: 1}
template:
  spec:
    replicatedJobs:
    - name: servers
      replicas: 3
      template: {spec: {parallelism: 2, template: {spec: {containers: [{name: c, image: i}]}}}}
`

const overflowing = `
mlPolicy: {numNodes: 1}
template:
  spec:
    replicatedJobs:
    - name: servers
      replicas: 65536
      template: {spec: {parallelism: 32769, template: {spec: {containers: [{name: c, image: i}]}}}}
`

const flux = `
mlPolicy: {numNodes: 1, flux: {numProcPerNode: 1}}
template:
  spec:
    replicatedJobs:
    - name: node
      template:
        metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
        spec: {template: {spec: {containers: [{name: node, image: i}]}}}
`

// onHostNetwork is a runtime whose pods have a sidecar with a port. Ports of plain init containers do not count.
const onHostNetwork = `
mlPolicy: {torch: {}}
template:
  spec:
    replicatedJobs:
    - name: node
      template:
        metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
        spec:
          template:
            spec:
              hostNetwork: true
              initContainers:
              - {name: metrics, image: i, restartPolicy: Always, ports: [{containerPort: 9400}]}
              - {name: check, image: i, ports: [{containerPort: 80}]}
              containers: [{name: node, image: i}]
`

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

// newTestDeriver has a client without a server: the framework reads nothing from a cluster for a demand.
func newTestDeriver(t testing.TB) *Deriver {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, trainer.AddToScheme} {
		check.Must(t, add(s))
	}
	nowhere, err := client.New(&rest.Config{Host: "http://127.0.0.1:1"}, client.Options{Scheme: s, Mapper: meta.NewDefaultRESTMapper(nil)})
	check.Must(t, err)
	d, err := NewDeriver(t.Context(), nowhere)
	check.Must(t, err)
	return d
}

func TestDerive(t *testing.T) {
	d := newTestDeriver(t)
	gpus := func(n string) *corev1.ResourceRequirements {
		return &corev1.ResourceRequirements{Limits: list("nvidia.com/gpu", n)}
	}
	for name, test := range map[string]struct {
		reason  string
		runtime string
		trainer *trainer.Trainer
		want    []v1alpha1.PodSet
		err     string
	}{
		"Torch": {
			reason:  "the job's numbers, and the runtime's node constraints; limits stand for requests that are not given",
			runtime: torch, trainer: &trainer.Trainer{NumNodes: new(int32(4)), ResourcesPerNode: gpus("8")},
			want: []v1alpha1.PodSet{{
				Name: "node", Role: "trainer", Count: 4, Requests: list("nvidia.com/gpu", "8"),
				NodeSelector: map[string]string{"zone": "a"},
				Tolerations:  []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}},
				NodeAffinity: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "arch", Operator: "In", Values: []string{"hopper"}}},
				}}},
			}},
		},
		"HostNetwork": {
			reason:  "the torch policy adds a port to the container node, and a node has it for one pod",
			runtime: onHostNetwork, trainer: &trainer.Trainer{NumNodes: new(int32(4))},
			want: []v1alpha1.PodSet{{
				Name: "node", Role: "trainer", Count: 4, Requests: corev1.ResourceList{},
				HostPorts: []v1alpha1.HostPort{{Port: 9400, Protocol: "TCP"}, {Port: 29500, Protocol: "TCP"}},
			}},
		},
		"Initializers": {
			reason: "apart from the trainers, all containers of a pod together", runtime: tuned,
			want: []v1alpha1.PodSet{
				{Name: "dataset-initializer", Role: "dataset-initializer", Count: 1, Requests: list("cpu", "2")},
				{Name: "node", Role: "trainer", Count: 2, Requests: list("nvidia.com/gpu", "2", "memory", "1Gi", "cpu", "500m")},
			},
		},
		"MPI": {
			reason:  "the launcher is one of the nodes",
			runtime: mpi, trainer: &trainer.Trainer{NumNodes: new(int32(4)), ResourcesPerNode: gpus("1")},
			want: []v1alpha1.PodSet{
				{Name: "launcher", Role: "launcher", Count: 1, Requests: list("nvidia.com/gpu", "1")},
				{Name: "node", Role: "trainer", Count: 3, Requests: list("nvidia.com/gpu", "1")},
			},
		},
		"Replicas": {
			reason: "replicas times parallelism", runtime: workersWithReplicas,
			want: []v1alpha1.PodSet{{Name: "servers", Count: 6, Requests: corev1.ResourceList{}}},
		},
		"Overflow": {
			reason: "a product of counts that is no int32 is not read as a small or negative one", runtime: overflowing,
			err: "the job is too large: spec.trainer.numNodes, replicas and parallelism make 2147483647 or more pods, at most 150000 are counted",
		},
		"Panic": {
			reason: "a runtime that the framework cannot apply is an answer, not a crash", runtime: flux,
			err: "the runtime cannot be used with this job",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var spec trainer.TrainingRuntimeSpec
			check.Must(t, yaml.UnmarshalStrict([]byte(test.runtime), &spec))
			job := &trainer.TrainJob{Spec: trainer.TrainJobSpec{
				RuntimeRef: trainer.RuntimeRef{Name: "r", Kind: new("ClusterTrainingRuntime"), APIGroup: new("trainer.kubeflow.org")},
				Trainer:    test.trainer,
			}}
			got, err := d.derive(job, &spec)
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Fatalf("derive: %v, want %q: %s", err, test.err, test.reason)
			}
			check.Diff(t, test.want, got.PodSets, fmt.Sprintf("derive(): %s", test.reason))
		})
	}
}

// TestTolerationsOfFlavors: a flavor adds its tolerations to those of the runtime, or to those of the user, which replace
// the runtime's.
func TestTolerationsOfFlavors(t *testing.T) {
	d := newTestDeriver(t)
	tolerate := func(keys ...string) (tolerations []corev1.Toleration) {
		for _, key := range keys {
			tolerations = append(tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
		}
		return tolerations
	}
	users := trainjobs.HubFlavors([]trainer.ReplicatedJobPatch{trainjobs.OnNodes("node", nil, tolerate("team"))})
	users.Manager = "example.com/user"
	for name, test := range map[string]struct {
		reason  string
		patches []trainer.RuntimePatch
		flavor  []corev1.Toleration
		want    []corev1.Toleration
	}{
		"Runtime":   {reason: "the runtime's stay", flavor: tolerate("spot"), want: tolerate("gpu", "spot")},
		"User":      {reason: "the user's stay", patches: []trainer.RuntimePatch{*users}, flavor: tolerate("spot"), want: tolerate("team", "spot")},
		"Same":      {reason: "once is enough", flavor: tolerate("gpu", "spot"), want: tolerate("gpu", "spot")},
		"NoneOfIts": {reason: "a flavor may have labels only", want: tolerate("gpu")},
	} {
		t.Run(name, func(t *testing.T) {
			var spec trainer.TrainingRuntimeSpec
			check.Must(t, yaml.UnmarshalStrict([]byte(torch), &spec))
			job := &trainer.TrainJob{Spec: trainer.TrainJobSpec{
				RuntimeRef:     trainer.RuntimeRef{Name: "r", Kind: new("ClusterTrainingRuntime"), APIGroup: new("trainer.kubeflow.org")},
				RuntimePatches: test.patches,
			}}
			trainjobs.SetHubFlavors(job, trainjobs.HubFlavors([]trainer.ReplicatedJobPatch{
				trainjobs.OnNodes("node", map[string]string{"zone": "b"}, test.flavor),
			}))
			got, err := d.derive(job, &spec)
			check.Must(t, err)
			check.Diff(t, test.want, got.PodSets[0].Tolerations, fmt.Sprintf("tolerations: %s", test.reason))
			if zone := got.PodSets[0].NodeSelector["zone"]; zone != "b" {
				t.Errorf("the pods go to zone %q, want that of the flavor", zone)
			}
		})
	}
}
