// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	trainercore "github.com/kubeflow/trainer/v2/pkg/runtime/core"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelpers "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	jobsetapply "sigs.k8s.io/jobset/client-go/applyconfiguration/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/hostports"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

// What is counted for a job is what its JobSet makes: for each runtime that the trainer module ships, the demand is
// compared with the pods of the JobSet that the module builds, as a real API server admits them.
func TestDemandIsWhatTheJobSetMakes(t *testing.T) {
	s := newScene(t)
	module, err := clusters.ModuleDir(t.Context(), "github.com/kubeflow/trainer/v2")
	check.Must(t, err)
	for _, file := range []string{
		"manifests/base/runtimes/deepspeed_distributed.yaml", "manifests/base/runtimes/jax_distributed.yaml",
		"manifests/base/runtimes/mlx_distributed.yaml", "manifests/base/runtimes/xgboost_distributed.yaml",
		"manifests/base/runtimes/torchtune/llama3_2/llama3_2_1B.yaml", "manifests/base/runtimes/torchtune/qwen2_5/qwen2_5_1.5B.yaml",
		"manifests/base/runtimes/data-cache/torch_distributed_with_cache.yaml", "examples/flux/flux-runtime.yaml",
	} {
		check.Must(t, s.Hub.Cluster.ApplyFiles(t.Context(), filepath.Join(module, file)))
	}
	s.plainRuntime(t)

	gpus := func(n string) *corev1.ResourceRequirements {
		return &corev1.ResourceRequirements{Limits: list("nvidia.com/gpu", n), Requests: list("cpu", "4")}
	}
	patches := []trainer.RuntimePatch{{
		Manager: "example.com/tests",
		TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{Template: &trainer.JobSetTemplatePatch{Spec: &trainer.JobSetSpecPatch{
			ReplicatedJobs: []trainer.ReplicatedJobPatch{{
				Name: "node",
				Template: &trainer.JobTemplatePatch{Spec: &trainer.JobSpecPatch{Template: &trainer.PodTemplatePatch{Spec: &trainer.PodSpecPatch{
					NodeSelector: map[string]string{"pool": "training"},
					Tolerations:  []corev1.Toleration{{Key: "training", Operator: corev1.TolerationOpExists}},
					Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
						RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
							{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}},
						}},
					}},
				}}}},
			}},
		}}},
	}}
	// The number of pods of each role is written down, so that both sides are not wrong together.
	for name, test := range map[string]struct {
		runtime string
		trainer *trainer.Trainer
		patches []trainer.RuntimePatch
		want    map[string]int32
	}{
		"Torch":         {runtime: "torch-distributed", trainer: &trainer.Trainer{NumNodes: new(int32(4)), ResourcesPerNode: gpus("8")}, want: map[string]int32{"node": 4}},
		"TorchDefault":  {runtime: "torch-distributed", want: map[string]int32{"node": 1}},
		"TorchPatched":  {runtime: "torch-distributed", trainer: &trainer.Trainer{NumNodes: new(int32(2))}, patches: patches, want: map[string]int32{"node": 2}},
		"TorchProcs":    {runtime: "torch-distributed", trainer: &trainer.Trainer{NumNodes: new(int32(2)), NumProcPerNode: new(int32(4)), ResourcesPerNode: gpus("4")}, want: map[string]int32{"node": 2}},
		"DataCache":     {runtime: "torch-distributed-with-cache", trainer: &trainer.Trainer{NumNodes: new(int32(3)), ResourcesPerNode: gpus("1")}, want: map[string]int32{"dataset-initializer": 1, "node": 3}},
		"TorchTune":     {runtime: "torchtune-llama3.2-1b", want: map[string]int32{"dataset-initializer": 1, "model-initializer": 1, "node": 1}},
		"TorchTuneMore": {runtime: "torchtune-qwen2.5-1.5b", trainer: &trainer.Trainer{ResourcesPerNode: gpus("4")}, want: map[string]int32{"dataset-initializer": 1, "model-initializer": 1, "node": 1}},
		"DeepSpeed":     {runtime: "deepspeed-distributed", trainer: &trainer.Trainer{NumNodes: new(int32(4)), ResourcesPerNode: gpus("8")}, want: map[string]int32{"launcher": 1, "node": 3}},
		"DeepSpeedOne":  {runtime: "deepspeed-distributed", trainer: &trainer.Trainer{NumNodes: new(int32(1)), ResourcesPerNode: gpus("8")}, want: map[string]int32{"launcher": 1, "node": 1}},
		"DeepSpeedPatched": {
			runtime: "deepspeed-distributed", trainer: &trainer.Trainer{NumNodes: new(int32(3)), NumProcPerNode: new(int32(8))}, patches: patches,
			want: map[string]int32{"launcher": 1, "node": 2},
		},
		"MLX":                {runtime: "mlx-distributed", trainer: &trainer.Trainer{NumNodes: new(int32(2)), ResourcesPerNode: gpus("1")}, want: map[string]int32{"launcher": 1, "node": 1}},
		"JAX":                {runtime: "jax-distributed", trainer: &trainer.Trainer{NumNodes: new(int32(5)), ResourcesPerNode: gpus("8")}, want: map[string]int32{"node": 5}},
		"XGBoost":            {runtime: "xgboost-distributed", trainer: &trainer.Trainer{NumNodes: new(int32(3)), ResourcesPerNode: gpus("1")}, want: map[string]int32{"node": 3}},
		"Flux":               {runtime: "flux-distributed", trainer: &trainer.Trainer{NumNodes: new(int32(4)), NumProcPerNode: new(int32(2)), Command: []string{"true"}, ResourcesPerNode: gpus("1")}, want: map[string]int32{"node": 4}},
		"Plain":              {runtime: "plain", trainer: &trainer.Trainer{NumNodes: new(int32(6)), ResourcesPerNode: gpus("2")}, want: map[string]int32{"node": 6, "servers": 6}},
		"HostNetwork":        {runtime: "host-network", trainer: &trainer.Trainer{NumNodes: new(int32(3))}, want: map[string]int32{"node": 3}},
		"HostNetworkDefault": {runtime: "host-network", want: map[string]int32{"node": 1}},
		"MPILauncherAlone": {
			runtime: "mpi-launcher-alone", trainer: &trainer.Trainer{NumNodes: new(int32(4)), ResourcesPerNode: gpus("8")},
			want: map[string]int32{"launcher": 1, "node": 4},
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := &trainer.TrainJob{
				ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "demand", UID: "uid"},
				Spec: trainer.TrainJobSpec{
					RuntimeRef: trainer.RuntimeRef{Name: test.runtime, Kind: new(trainer.ClusterTrainingRuntimeKind), APIGroup: new(trainer.GroupVersion.Group)},
					Trainer:    test.trainer, RuntimePatches: test.patches,
				},
			}
			needs, err := s.reconciler.needs.demands.Of(t.Context(), job.DeepCopy())
			check.Must(t, err)
			got := needs.PodSets
			check.Diff(t, s.made(t, job), got, "the demand is not what the JobSet makes (-JobSet +demand)")
			counts := map[string]int32{}
			for _, podSet := range got {
				counts[podSet.Name] = podSet.Count
			}
			check.Diff(t, test.want, counts, "pods")
		})
	}
}

// plainRuntime makes runtimes of kinds that the trainer module ships none of: without a framework, with a replicated
// job of its own beside the nodes, MPI whose launcher is not one of the nodes, and pods with host ports.
func (s *scene) plainRuntime(t *testing.T) {
	t.Helper()
	pod := func(name string, resources corev1.ResourceRequirements) jobsetv1alpha2.ReplicatedJob {
		job := jobsetv1alpha2.ReplicatedJob{Name: name, Replicas: 1}
		job.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "node", Image: "none", Resources: resources}}
		return job
	}
	node := pod("node", corev1.ResourceRequirements{})
	node.Template.Labels = map[string]string{"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
	node.Template.Spec.Template.Spec.InitContainers = []corev1.Container{{
		Name: "prepare", Image: "none", Resources: corev1.ResourceRequirements{Requests: list("memory", "2Gi")},
	}}
	servers := pod("servers", corev1.ResourceRequirements{Limits: list("cpu", "1", "memory", "1Gi"), Requests: list("cpu", "500m")})
	servers.Replicas, servers.Template.Spec.Parallelism = 3, new(int32(2))
	launcher := pod("launcher", corev1.ResourceRequirements{Requests: list("cpu", "1")})
	workers := pod("node", corev1.ResourceRequirements{})
	workers.Template.Labels = node.Template.Labels
	for name, spec := range map[string]trainer.TrainingRuntimeSpec{
		"host-network": onHostNetwork(*node.DeepCopy()),
		"plain": {
			MLPolicy: &trainer.MLPolicy{NumNodes: new(int32(2))},
			Template: trainer.JobSetTemplateSpec{Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{node, servers}}},
		},
		"mpi-launcher-alone": {
			MLPolicy: &trainer.MLPolicy{NumNodes: new(int32(1)), MLPolicySource: trainer.MLPolicySource{MPI: &trainer.MPIMLPolicySource{
				NumProcPerNode: new(int32(1)), MPIImplementation: ptr.To(trainer.MPIImplementationOpenMPI),
				SSHAuthMountPath: new("/home/mpiuser/.ssh"), RunLauncherAsNode: new(false),
			}}},
			Template: trainer.JobSetTemplateSpec{Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{launcher, workers}}},
		},
	} {
		check.Must(t, s.Hub.Admin.Create(t.Context(), &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}))
	}
}

// onHostNetwork is a runtime with the torch policy, which adds a port to the container node.
func onHostNetwork(node jobsetv1alpha2.ReplicatedJob) trainer.TrainingRuntimeSpec {
	pod := &node.Template.Spec.Template.Spec
	always := corev1.ContainerRestartPolicyAlways
	port := func(number int32) []corev1.ContainerPort { return []corev1.ContainerPort{{ContainerPort: number}} }
	pod.HostNetwork = true
	pod.InitContainers = []corev1.Container{
		{Name: "prepare", Image: "none", Ports: port(8080)},
		{Name: "metrics", Image: "none", Ports: port(9400), RestartPolicy: &always},
	}
	return trainer.TrainingRuntimeSpec{
		MLPolicy: &trainer.MLPolicy{NumNodes: new(int32(1)), MLPolicySource: trainer.MLPolicySource{Torch: &trainer.TorchMLPolicySource{}}},
		Template: trainer.JobSetTemplateSpec{Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{node}}},
	}
}

// noIndex is for the indexes that only the TrainJob controller of the trainer module reads.
type noIndex struct{}

func (noIndex) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return nil
}

// made returns the pods that the JobSet of a job makes.
func (s *scene) made(t *testing.T, job *trainer.TrainJob) []v1alpha1.PodSet {
	t.Helper()
	key := trainerruntime.RuntimeRefToRuntimeRegistryKey(job.Spec.RuntimeRef)
	var spec trainer.ClusterTrainingRuntime
	check.Must(t, s.Hub.Admin.Get(t.Context(), client.ObjectKey{Name: job.Spec.RuntimeRef.Name}, &spec))
	runtimes, err := trainercore.New(t.Context(), s.Hub.Admin, noIndex{}, nil)
	check.Must(t, err)
	objects, err := runtimes[key].NewObjects(t.Context(), job.DeepCopy())
	check.Must(t, err)
	check.Must(t, s.Hub.Admin.DeleteAllOf(t.Context(), &corev1.ConfigMap{}, client.InNamespace(s.Namespace))) // The snapshot of the runtime.
	var podSets []v1alpha1.PodSet
	for _, object := range objects {
		if _, is := object.(*jobsetapply.JobSetApplyConfiguration); !is {
			continue
		}
		encoded, err := json.Marshal(object)
		check.Must(t, err)
		jobSet := &jobsetv1alpha2.JobSet{}
		check.Must(t, json.Unmarshal(encoded, jobSet))
		for _, replicated := range jobSet.Spec.ReplicatedJobs {
			template := replicated.Template.Spec.Template
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "pod"}, Spec: template.Spec}
			for i := range pod.Spec.Containers {
				pod.Spec.Containers[i].VolumeMounts = nil // Of volumes that JobSet adds.
			}
			check.Must(t, s.Hub.Admin.Create(t.Context(), pod, client.DryRunAll)) // Defaults are the API server's.
			podSet := v1alpha1.PodSet{
				Name: replicated.Name, Role: v1alpha1.PodSetRole(replicated.Template.Labels["trainer.kubeflow.org/trainjob-ancestor-step"]),
				Count:        max(replicated.Replicas, 1) * ptr.Deref(replicated.Template.Spec.Parallelism, 1),
				HostPorts:    hostPorts(&pod.Spec),
				Requests:     resourcehelpers.PodRequests(pod, resourcehelpers.PodResourcesOptions{}),
				NodeSelector: template.Spec.NodeSelector, Tolerations: template.Spec.Tolerations,
				TerminationGracePeriodSeconds: template.Spec.TerminationGracePeriodSeconds,
			}
			if affinity := template.Spec.Affinity; affinity != nil && affinity.NodeAffinity != nil {
				podSet.NodeAffinity = affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
			}
			switch podSet.Name { // To the runtime the launcher is the trainer, and the nodes of MPI have no role.
			case "launcher":
				podSet.Role = v1alpha1.RoleLauncher
			case "node":
				podSet.Role = v1alpha1.RoleTrainer
			}
			podSets = append(podSets, podSet)
		}
	}
	return podSets
}

// hostPorts returns the host ports of a pod as an API server answers it, without what stops before the containers start.
func hostPorts(pod *corev1.PodSpec) []v1alpha1.HostPort {
	pod = pod.DeepCopy()
	pod.HostNetwork = false // The API server has made host ports of all ports.
	return hostports.Of(pod)
}
