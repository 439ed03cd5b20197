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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

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
