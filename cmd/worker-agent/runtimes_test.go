// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

// runtimeCase is what a TrainJob of one of the trainer module's runtimes must produce. {job} is its name.
type runtimeCase struct {
	trainer     trainer.Trainer
	initializer *trainer.Initializer
	// pods counts pods by step.
	pods map[string]int
	// env is what the framework sets in the last step, by pod. {first} is the host of the first pod of step node.
	env []map[string]string
	// loads is what initializers must load, by step.
	loads map[string]string
	// command is the command of the last step, if the framework changes it.
	command []string
	// hostfile is MPI's hostfile.
	hostfile string
	// after has the steps that must complete before the last step starts.
	after []string
	// fails is the step that fails in the failing job.
	fails string
}

// lastStep is the step that trains: the launcher of MPI, or the nodes.
func (c *runtimeCase) lastStep() string {
	if c.hostfile != "" {
		return "launcher"
	}
	return "node"
}

// runtimeCases are all runtimes below manifests/base/runtimes, with two nodes unless a runtime is for one node.
// Runtimes with GPUs are included: the simulated nodes have that resource.
var runtimeCases = map[string]runtimeCase{
	"torch-distributed": {
		trainer: trainer.Trainer{NumNodes: new(int32(2)), ResourcesPerNode: perNode("cpu", "3")},
		pods:    map[string]int{"node": 2},
		env:     torchEnv("3"), // as many as there are CPUs
		fails:   "node",
	},
	"torch-distributed-with-cache": {
		trainer: trainer.Trainer{NumNodes: new(int32(2)), NumProcPerNode: new(int32(4))},
		pods:    map[string]int{"dataset-initializer": 1, "node": 2},
		env:     torchEnv("4"),
		after:   []string{"dataset-initializer"},
		fails:   "dataset-initializer",
	},
	"torchtune-llama3.2-1b": torchtune("llama3_2/1B_full", "hf://meta-llama/Llama-3.2-1B-Instruct", "dataset-initializer",
		"tokenizer.path=/workspace/model/original/tokenizer.model"),
	"torchtune-llama3.2-3b": torchtune("llama3_2/3B_full", "hf://meta-llama/Llama-3.2-3B-Instruct", "model-initializer",
		"tokenizer.path=/workspace/model/original/tokenizer.model"),
	"torchtune-qwen2.5-1.5b": torchtune("qwen2_5/1.5B_full", "hf://Qwen/Qwen2.5-1.5B-Instruct", "node",
		"tokenizer.path=/workspace/model/vocab.json", "tokenizer.merges_file=/workspace/model/merges.txt"),
	"deepspeed-distributed": {
		trainer:  trainer.Trainer{NumNodes: new(int32(2)), ResourcesPerNode: perNode("nvidia.com/gpu", "4")},
		pods:     map[string]int{"node": 1, "launcher": 1}, // The launcher is a node, too.
		env:      openMPIEnv("4"),                          // as many as there are GPUs
		hostfile: "{job}-node-0-0.{job} slots=4\n{job}-launcher-0-0.{job} slots=4\n",
		fails:    "launcher",
	},
	"mlx-distributed": {
		trainer:  trainer.Trainer{NumNodes: new(int32(2)), NumProcPerNode: new(int32(2))},
		pods:     map[string]int{"node": 1, "launcher": 1},
		env:      openMPIEnv("2"),
		hostfile: "{job}-node-0-0.{job} slots=2\n{job}-launcher-0-0.{job} slots=2\n",
		fails:    "node",
	},
	"jax-distributed": {
		trainer: trainer.Trainer{NumNodes: new(int32(2))},
		pods:    map[string]int{"node": 2},
		env: []map[string]string{
			{"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "0", "JAX_COORDINATOR_ADDRESS": "{first}:29500"},
			{"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1", "JAX_COORDINATOR_ADDRESS": "{first}:29500"},
		},
		fails: "node",
	},
	"xgboost-distributed": {
		trainer: trainer.Trainer{NumNodes: new(int32(2)), ResourcesPerNode: perNode("nvidia.com/gpu", "4")},
		pods:    map[string]int{"node": 2},
		env: []map[string]string{ // a worker for each GPU
			{"DMLC_NUM_WORKER": "8", "DMLC_TASK_ID": "0", "DMLC_TRACKER_URI": "{first}", "DMLC_TRACKER_PORT": "29500"},
			{"DMLC_NUM_WORKER": "8", "DMLC_TASK_ID": "1", "DMLC_TRACKER_URI": "{first}", "DMLC_TRACKER_PORT": "29500"},
		},
		fails: "node",
	},
}

func perNode(name corev1.ResourceName, quantity string) *corev1.ResourceRequirements {
	amount := corev1.ResourceList{name: resource.MustParse(quantity)}
	return &corev1.ResourceRequirements{Requests: amount, Limits: amount}
}

func torchEnv(processes string) []map[string]string {
	var pods []map[string]string
	for _, rank := range []string{"0", "1"} {
		pods = append(pods, map[string]string{
			"PET_NNODES": "2", "PET_NPROC_PER_NODE": processes, "PET_NODE_RANK": rank,
			"PET_MASTER_ADDR": "{first}", "PET_MASTER_PORT": "29500",
		})
	}
	return pods
}

func openMPIEnv(slots string) []map[string]string {
	return []map[string]string{{
		"OMPI_MCA_orte_default_hostfile":    "/etc/mpi/hostfile",
		"OMPI_MCA_orte_keep_fqdn_hostnames": "true",
		"OMPI_MCA_orte_set_default_slots":   slots,
		"OMPI_MCA_plm_rsh_args":             "-o ConnectionAttempts=10",
	}}
}

// torchtune is the case of a runtime for one node with two GPUs. The command has the first node's address and the paths
// on the shared volume.
func torchtune(config, model, fails string, tokenizer ...string) runtimeCase {
	return runtimeCase{
		trainer: trainer.Trainer{NumNodes: new(int32(1)), Command: []string{"tune", "run"}},
		initializer: &trainer.Initializer{
			Dataset: &trainer.DatasetInitializer{StorageUri: new("hf://trainyard/dataset")},
			Model:   &trainer.ModelInitializer{},
		},
		pods:  map[string]int{"dataset-initializer": 1, "model-initializer": 1, "node": 1},
		loads: map[string]string{"dataset-initializer": "hf://trainyard/dataset", "model-initializer": model},
		env:   []map[string]string{{"PET_NNODES": "1", "PET_NPROC_PER_NODE": "auto", "PET_NODE_RANK": "0"}},
		command: slices.Concat(
			[]string{"tune", "run", "--rdzv_endpoint={first}:29500", "full_finetune_distributed", "--config", config, "output_dir=/workspace/output"},
			tokenizer, []string{"checkpointer.checkpoint_dir=/workspace/model"}),
		after: []string{"dataset-initializer", "model-initializer"},
		fails: fails,
	}
}

// TestRuntimes runs two jobs of each runtime of the trainer module with the real JobSet. The second job fails.
func TestRuntimes(t *testing.T) {
	setUp(t)
	a := startAgent(t, serveWebhooks(t, "runtimes")...)
	awaitRefusal(t)
	installRuntimes(t)
	t.Run("All", func(t *testing.T) { // returns when its parallel tests have ended
		for name, c := range runtimeCases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				t.Run("Complete", func(t *testing.T) { t.Parallel(); checkComplete(t, name, c) })
				t.Run("Failed", func(t *testing.T) { t.Parallel(); checkFailed(t, name, c) })
			})
		}
	})
	a.checkRights(t)
}

// checkComplete checks the pods while the pods of the last step wait, and then lets the job complete. JobSet then
// removes running pods, such as the nodes of MPI.
func checkComplete(t *testing.T, runtime string, c runtimeCase) {
	j := createRuntimeJob(t, runtime, c, metav1.NamespaceDefault)
	var pods map[string][]corev1.Pod
	eventually(t, "pods of "+j.Name, func(g gomega.Gomega) {
		pods = podsOf(g, t, j)
		got := map[string]int{}
		for step := range pods {
			got[step] = len(pods[step])
		}
		g.Expect(got).To(gomega.Equal(c.pods))
	})
	checkPods(t, j, c, pods)
	checkOrder(t, j, c)
	for _, pod := range pods[c.lastStep()] {
		pod.Spec.SchedulingGates = nil
		check.Must(t, world.client.Update(t.Context(), &pod))
	}
	eventually(t, j.Name+" to complete", func(g gomega.Gomega) {
		g.Expect(conditionsOf(g, t, j)).To(gomega.Equal("Complete=True"))
	})
	for _, status := range j.Status.JobsStatus {
		ends := status.Name == c.lastStep() || slices.Contains(c.after, status.Name)
		if ends && (status.Succeeded == nil || *status.Succeeded != 1) {
			t.Errorf("the job is complete, and step %s has not succeeded: %v", status.Name, status)
		}
	}
}

// checkPods checks that the pods find each other in the way of the framework.
func checkPods(t *testing.T, j *trainer.TrainJob, c runtimeCase, pods map[string][]corev1.Pod) {
	t.Helper()
	expand := strings.NewReplacer("{job}", j.Name, "{first}", host(pods["node"][0]))
	for i, want := range c.env {
		check.Diff(t, replaced(expand, want), frameworkEnv(pods[c.lastStep()][i]),
			fmt.Sprintf("env of pod %d of step %s", i, c.lastStep()))
	}
	if container := pods[c.lastStep()][0].Spec.Containers[0]; c.command != nil {
		check.Diff(t, expand.Replace(strings.Join(c.command, "\n")), strings.Join(container.Command, "\n"), "command")
	}
	for step, uri := range c.loads {
		check.Equal(t, uri, env(pods[step][0])["STORAGE_URI"], "%s loads", step)
	}
	checkSharedVolume(t, c, pods)
	checkHosts(t, c, pods, expand)
}

// checkFailed lets a step fail. The TrainJob has the JobSet's message, and later steps never start.
func checkFailed(t *testing.T, runtime string, c runtimeCase) {
	j := createRuntimeJob(t, runtime, c, failingNamespace)
	var failed *metav1.Condition
	eventually(t, j.Name+" to fail", func(g gomega.Gomega) {
		g.Expect(world.client.Get(t.Context(), client.ObjectKeyFromObject(j), j)).To(gomega.Succeed())
		failed = meta.FindStatusCondition(j.Status.Conditions, trainer.TrainJobFailed)
		g.Expect(failed).NotTo(gomega.BeNil(), "%v", j.Status)
	})
	jobSet := &jobsetv1alpha2.JobSet{}
	check.Must(t, world.client.Get(t.Context(), client.ObjectKeyFromObject(j), jobSet))
	words := meta.FindStatusCondition(jobSet.Status.Conditions, string(jobsetv1alpha2.JobSetFailed))
	if words == nil || failed.Status != metav1.ConditionTrue || failed.Reason != words.Reason || failed.Message != words.Message {
		t.Errorf("got %v, JobSet says %v", failed, words)
	}
	want := fmt.Sprintf("jobset failed due to one or more job failures (first failed job: %s-%s-0)", j.Name, c.fails)
	if failed.Reason != "FailedJobs" || failed.Message != want {
		t.Errorf("got reason %q, message %q; want FailedJobs, %q", failed.Reason, failed.Message, want)
	}
	if meta.IsStatusConditionTrue(j.Status.Conditions, trainer.TrainJobComplete) {
		t.Error("the job is Complete, too")
	}
	if slices.Contains(c.after, c.fails) {
		if jobs := jobsOf(t, j); jobs[c.lastStep()] != nil {
			t.Errorf("step %s was started after %s had failed", c.lastStep(), c.fails)
		}
	}
}

// checkSharedVolume checks that the trainer mounts the volume to which the initializers load.
func checkSharedVolume(t *testing.T, c runtimeCase, pods map[string][]corev1.Pod) {
	t.Helper()
	if c.loads == nil {
		return
	}
	var claims []string
	for _, step := range []string{"dataset-initializer", "model-initializer", "node"} {
		for _, volume := range pods[step][0].Spec.Volumes {
			if volume.Name == "initializer" && volume.PersistentVolumeClaim != nil {
				claims = append(claims, volume.PersistentVolumeClaim.ClaimName)
			}
		}
	}
	if len(claims) != 3 || len(slices.Compact(claims)) != 1 {
		t.Errorf("the steps mount the claims %v, want one in all three", claims)
	}
}

// checkHosts checks that the launcher's hostfile has all pods with their host names.
func checkHosts(t *testing.T, c runtimeCase, pods map[string][]corev1.Pod, expand *strings.Replacer) {
	t.Helper()
	if c.hostfile == "" {
		return
	}
	launcher := pods["launcher"][0]
	i := slices.IndexFunc(launcher.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "mpi-hostfile" })
	if i < 0 || launcher.Spec.Volumes[i].ConfigMap == nil {
		t.Fatalf("the launcher has no volume with the hostfile: %v", launcher.Spec.Volumes)
	}
	hosts := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: launcher.Namespace, Name: launcher.Spec.Volumes[i].ConfigMap.Name}
	check.Must(t, world.client.Get(t.Context(), key, hosts))
	check.Diff(t, expand.Replace(c.hostfile), hosts.Data["hostfile"], "hostfile")
	for _, pod := range append(pods["node"], launcher) {
		if !strings.Contains(hosts.Data["hostfile"], host(pod)+" ") {
			t.Errorf("the hostfile lacks %s:\n%s", host(pod), hosts.Data["hostfile"])
		}
	}
}

// checkOrder checks that the last step was created after the steps before had completed, in whole seconds.
func checkOrder(t *testing.T, j *trainer.TrainJob, c runtimeCase) {
	t.Helper()
	jobs := jobsOf(t, j)
	for _, step := range c.after {
		ended, started := jobs[step].Status.CompletionTime, jobs[c.lastStep()].CreationTimestamp
		if ended == nil || started.Before(ended) {
			t.Errorf("step %s was created at %s, and step %s ended at %s", c.lastStep(), started, step, ended)
		}
	}
}

// createRuntimeJob creates a TrainJob that fails in failingNamespace. Elsewhere its last step waits for the test.
func createRuntimeJob(t *testing.T, runtime string, c runtimeCase, namespace string) *trainer.TrainJob {
	t.Helper()
	j := &trainer.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: strings.ReplaceAll(runtime, ".", "-")},
		Spec: trainer.TrainJobSpec{
			RuntimeRef:  trainer.RuntimeRef{Name: runtime},
			Trainer:     c.trainer.DeepCopy(),
			Initializer: c.initializer.DeepCopy(),
		},
	}
	patches := map[string]*trainer.PodTemplatePatch{}
	for step := range c.pods {
		patches[step] = &trainer.PodTemplatePatch{Metadata: &metav1.ObjectMeta{Annotations: map[string]string{}}}
	}
	for _, step := range c.after {
		patches[step].Metadata.Annotations[clusters.RunForAnnotation] = "3s"
	}
	if c.hostfile != "" {
		patches["node"].Metadata.Annotations[clusters.RunForAnnotation] = clusters.RunForever // It is an SSH server.
	}
	if namespace == failingNamespace {
		j.Spec.RuntimeRef.Kind = new(trainer.TrainingRuntimeKind)
		patches[c.fails].Metadata.Annotations = map[string]string{clusters.FailAnnotation: "out of luck"}
	} else {
		gate := corev1.PodSchedulingGate{Name: "trainyard.dev/looked-at"}
		patches[c.lastStep()].Spec = &trainer.PodSpecPatch{SchedulingGates: []corev1.PodSchedulingGate{gate}}
	}
	j.Spec.RuntimePatches = []trainer.RuntimePatch{patchPods(patches)}
	check.Must(t, world.client.Create(t.Context(), j))
	return j
}

// patchPods patches the pods of each step.
func patchPods(patches map[string]*trainer.PodTemplatePatch) trainer.RuntimePatch {
	spec := &trainer.JobSetSpecPatch{}
	for step, pod := range patches {
		spec.ReplicatedJobs = append(spec.ReplicatedJobs, trainer.ReplicatedJobPatch{
			Name: step, Template: &trainer.JobTemplatePatch{Spec: &trainer.JobSpecPatch{Template: pod}},
		})
	}
	return trainer.RuntimePatch{
		Manager:             "trainyard.dev/runtimes-test",
		TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{Template: &trainer.JobSetTemplatePatch{Spec: spec}},
	}
}

// failingNamespace has each runtime as a TrainingRuntime whose Jobs do not retry, because a retry takes a minute.
const failingNamespace = "failing-runtimes"

// frameworkPrefixes are prefixes of the environment variables by which the processes of a job find each other.
var frameworkPrefixes = []string{"PET_", "JAX_", "DMLC_", "OMPI_"}

// installRuntimes installs all runtimes of the trainer module, and their GPUs, volumes and service account.
func installRuntimes(t *testing.T) {
	t.Helper()
	runtimes := readRuntimes(t)
	want, got := slices.Sorted(maps.Keys(runtimeCases)), slices.Sorted(maps.Keys(runtimes))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("the trainer module has other runtimes than those with a case in runtimeCases (-cases +module):\n%s", diff)
	}
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: failingNamespace}})
	for _, namespace := range []string{metav1.NamespaceDefault, failingNamespace} {
		create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kubeflow-trainer-cache-initializer"}})
	}
	gpus := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}
	check.Must(t, world.cluster.AddNodes(t.Context(), clusters.NodeShape{Count: 6, NamePrefix: "gpu", Capacity: gpus}))
	bindVolumes(t, 2*len(runtimes))
	for _, runtime := range runtimes {
		failing := runtime.DeepCopy()
		failing.SetKind(trainer.TrainingRuntimeKind)
		failing.SetNamespace(failingNamespace)
		withoutRetries(t, failing)
		check.Must(t, world.cluster.ApplyObjects(t.Context(), runtime, failing))
	}
}

// readRuntimes returns the ClusterTrainingRuntimes below manifests/base/runtimes of the trainer module, by name.
func readRuntimes(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	module, err := clusters.ModuleDir(t.Context(), "github.com/kubeflow/trainer/v2")
	check.Must(t, err)
	runtimes := map[string]*unstructured.Unstructured{}
	err = filepath.WalkDir(filepath.Join(module, "manifests/base/runtimes"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == "kustomization.yaml" {
			return err
		}
		objects, err := clusters.ReadObjects(path)
		if err != nil {
			return err
		}
		if len(objects) != 1 || objects[0].GetKind() != trainer.ClusterTrainingRuntimeKind {
			return fmt.Errorf("%s is not one ClusterTrainingRuntime", path)
		}
		runtimes[objects[0].GetName()] = objects[0]
		return nil
	})
	check.Must(t, err)
	return runtimes
}

func withoutRetries(t *testing.T, runtime *unstructured.Unstructured) {
	t.Helper()
	path := []string{"spec", "template", "spec", "replicatedJobs"}
	jobs, _, err := unstructured.NestedSlice(runtime.Object, path...)
	check.Must(t, err)
	for _, job := range jobs {
		check.Must(t, unstructured.SetNestedField(job.(map[string]any), int64(0), "template", "spec", "backoffLimit"))
	}
	check.Must(t, unstructured.SetNestedSlice(runtime.Object, jobs, path...))
}

// bindVolumes makes volumes and runs the controller that binds claims to them, because the test clusters have none.
func bindVolumes(t *testing.T, count int) {
	t.Helper()
	for i := range count {
		create(t, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "volume-" + strconv.Itoa(i)},
			Spec: corev1.PersistentVolumeSpec{
				AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("100Gi")},
				PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/volume"}},
			},
		})
	}
	binder, err := world.cluster.Run(t.Context(), "volume-binder", "controlplane", "kube-controller-manager",
		"--kubeconfig="+world.cluster.KubeconfigPath, "--controllers=persistentvolume-binder-controller",
		"--leader-elect=false", "--secure-port=0")
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, binder.Stop()) })
}

func create(t *testing.T, object client.Object) {
	t.Helper()
	check.Must(t, world.client.Create(t.Context(), object))
}

// podsOf returns the pods of a TrainJob by step, in the order of their index.
func podsOf(g gomega.Gomega, t *testing.T, j *trainer.TrainJob) map[string][]corev1.Pod {
	var list corev1.PodList
	labels := client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: j.Name}
	g.Expect(world.client.List(t.Context(), &list, client.InNamespace(j.Namespace), labels)).To(gomega.Succeed())
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return strings.Compare(index(a), index(b)) })
	pods := map[string][]corev1.Pod{}
	for _, pod := range list.Items {
		step := pod.Labels[jobsetv1alpha2.ReplicatedJobNameKey]
		pods[step] = append(pods[step], pod)
	}
	return pods
}

// jobsOf returns the Jobs of a TrainJob's JobSet by step.
func jobsOf(t *testing.T, j *trainer.TrainJob) map[string]*batchv1.Job {
	t.Helper()
	var list batchv1.JobList
	err := world.client.List(t.Context(), &list, client.InNamespace(j.Namespace), client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: j.Name})
	check.Must(t, err)
	jobs := map[string]*batchv1.Job{}
	for i := range list.Items {
		jobs[list.Items[i].Labels[jobsetv1alpha2.ReplicatedJobNameKey]] = &list.Items[i]
	}
	return jobs
}

func index(pod corev1.Pod) string { return pod.Annotations[batchv1.JobCompletionIndexAnnotation] }

// host returns the name under which the other pods of a JobSet reach a pod.
func host(pod corev1.Pod) string { return pod.Spec.Hostname + "." + pod.Spec.Subdomain }

// env returns the environment of a pod's first container, with the values of the pod's index.
func env(pod corev1.Pod) map[string]string {
	values := map[string]string{}
	for _, v := range pod.Spec.Containers[0].Env {
		values[v.Name] = v.Value
		if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil &&
			v.ValueFrom.FieldRef.FieldPath == "metadata.annotations['"+batchv1.JobCompletionIndexAnnotation+"']" {
			values[v.Name] = index(pod)
		}
	}
	return values
}

func frameworkEnv(pod corev1.Pod) map[string]string {
	values := env(pod)
	maps.DeleteFunc(values, func(name, _ string) bool {
		return !slices.ContainsFunc(frameworkPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	})
	return values
}

func replaced(r *strings.Replacer, values map[string]string) map[string]string {
	result := map[string]string{}
	for name, value := range values {
		result[name] = r.Replace(value)
	}
	return result
}
