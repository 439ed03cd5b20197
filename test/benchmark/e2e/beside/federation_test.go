// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/kueue"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/trainyard"
	"github.com/trainyard/trainyard/test/check"
	testkueue "github.com/trainyard/trainyard/test/kueue"
	"github.com/trainyard/trainyard/test/yard"
)

// federation is a hub whose MultiKueue has two workers, and a Trainyard that nominates them.
type federation struct {
	*hub
	kueue     *kueue.Kueue
	trainyard *trainyard.Trainyard
	// east has two nodes of eight GPUs, and west four nodes of two.
	east, west *site
	seen       *owners
}

// site is a worker under the name that both MultiKueue and Trainyard have for it.
type site struct {
	client.WithWatch
	name    string
	cluster *fleet.Cluster
}

func newFederation(t *testing.T) *federation {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	took := stopwatch(t)
	all, err := fleet.Start(ctx, fleet.Options{Workers: 2, Audit: true, GPUs: [][]int64{{8, 8}, {2, 2, 2, 2}}})
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, all.Stop()) })
	took("start of the API servers")
	installRay(ctx, t, all)
	integrations := append(slices.Clone(kueue.Tuned().Integrations), "ray.io/rayjob")
	k := kueue.New(all, kueue.Tuning{Groups: 1, Integrations: integrations, Dispatcher: "trainyard.dev/gang-fit"})
	check.Must(t, k.Install(ctx))
	check.Must(t, k.Start(ctx))
	check.Must(t, k.Connected(ctx))
	took("start of Kueue")
	f := &federation{kueue: k, hub: &hub{Client: all.Hub.Admin, queue: k.Labels()[0]["kueue.x-k8s.io/queue-name"]}}
	var workers []trainyard.Worker
	for i, s := range []**site{&f.east, &f.west} {
		path, err := all.Workers[i].WriteKubeconfig()
		check.Must(t, err)
		*s = &site{WithWatch: all.Workers[i].Admin, name: fmt.Sprintf("%s-0", all.Workers[i].Name), cluster: all.Workers[i]}
		workers = append(workers, trainyard.Worker{Name: (*s).name, Kubeconfig: path})
	}
	f.seen = watchOwners(t, all.Hub.Admin)
	f.trainyard = trainyard.New(all.Hub, workers, trainyard.Options{Args: []string{"--v=1", "--kueue-dispatcher"}})
	check.Must(t, f.trainyard.Install(ctx))
	check.Must(t, f.trainyard.Start(ctx))
	check.Must(t, f.trainyard.Connected(ctx))
	took("start of Trainyard")
	return f
}

// installRay installs the CRDs of RayJobs on all clusters.
func installRay(ctx context.Context, t *testing.T, all *fleet.Fleet) {
	t.Helper()
	module, err := testkueue.ModuleDir(ctx, "github.com/ray-project/kuberay/ray-operator")
	check.Must(t, err)
	for _, cluster := range all.Clusters() {
		for _, kind := range []string{"rayclusters", "rayjobs"} {
			check.Must(t, cluster.Cluster.ApplyFiles(ctx, filepath.Join(module, "config/crd/bases", "ray.io_"+kind+".yaml")))
		}
	}
}

func workloadList() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("kueue.x-k8s.io/v1beta2")
	list.SetKind("WorkloadList")
	return list
}

// given is how many clones of a Workload the worker was ever given.
func (s *site) given(t *testing.T, workload string) int {
	t.Helper()
	return creations(t, s.cluster, "workloads", workload)
}

// step is a part of a test, after which the ownership of all Workloads has been right.
func (f *federation) step(t *testing.T, name string, run func(t *testing.T)) {
	t.Helper()
	ok := t.Run(name, func(t *testing.T) {
		run(t)
		f.seen.right(t)
	})
	if !ok {
		t.FailNow() // The next steps build on it.
	}
}

// batchJob is a Job of some pods with so many GPUs each.
func batchJob(name string, pods int32, gpus int64) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: name},
		Spec: batchv1.JobSpec{
			ManagedBy: ptr.To(v1alpha1.ManagedByMultiKueue), Parallelism: ptr.To(pods), Completions: ptr.To(pods), Template: podTemplate(gpus),
		},
	}
}

func podTemplate(gpus int64) corev1.PodTemplateSpec {
	amounts := corev1.ResourceList{yard.GPU: *resource.NewQuantity(gpus, resource.DecimalSI), corev1.ResourceCPU: resource.MustParse("1")}
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: amounts, Limits: amounts}}},
	}}
}

func jobSet(name string, pods int32, gpus int64) *jobsetv1alpha2.JobSet {
	return &jobsetv1alpha2.JobSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: name},
		Spec: jobsetv1alpha2.JobSetSpec{
			ManagedBy: ptr.To(v1alpha1.ManagedByMultiKueue),
			ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{{Name: "node", Replicas: 1, Template: batchv1.JobTemplateSpec{
				Spec: batchv1.JobSpec{Parallelism: ptr.To(pods), Completions: ptr.To(pods), Template: podTemplate(gpus)},
			}}},
		},
	}
}

// rayJob has a head without GPUs, and one worker.
func rayJob(name string, gpus int64) *unstructured.Unstructured {
	job := &unstructured.Unstructured{}
	job.SetAPIVersion("ray.io/v1")
	job.SetKind("RayJob")
	job.SetNamespace(fleet.Namespace)
	job.SetName(name)
	pod := func(gpus int64) map[string]any {
		return map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
			"name": "ray", "image": "i", "resources": map[string]any{"requests": map[string]any{"cpu": "1"}, "limits": map[string]any{"nvidia.com/gpu": gpus}},
		}}}}
	}
	job.Object["spec"] = map[string]any{
		"managedBy": v1alpha1.ManagedByMultiKueue, "entrypoint": "python train.py", "shutdownAfterJobFinishes": true,
		"rayClusterSpec": map[string]any{
			"headGroupSpec": map[string]any{"rayStartParams": map[string]any{}, "template": pod(0)},
			"workerGroupSpecs": []any{map[string]any{
				"groupName": "gpus", "replicas": int64(1), "minReplicas": int64(1), "maxReplicas": int64(1),
				"rayStartParams": map[string]any{}, "template": pod(gpus),
			}},
		},
	}
	return job
}

// logged waits until the hub's Kueue has written some words to its log.
func (f *federation) logged(t *testing.T, words string) {
	t.Helper()
	await(t, fmt.Sprintf("have Kueue log %q", words), func(context.Context) error {
		log, err := os.ReadFile(f.kueue.LogPath())
		if err == nil && !strings.Contains(string(log), words) {
			err = errors.New("it has not")
		}
		return err
	})
}

// create puts a job into MultiKueue's queue, and returns the name of its Workload.
func (f *federation) create(t *testing.T, job client.Object) string {
	t.Helper()
	job.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": f.queue})
	await(t, "create "+job.GetName(), func(ctx context.Context) error {
		return f.Create(ctx, job.DeepCopyObject().(client.Object))
	})
	var name string
	await(t, "have a Workload of "+job.GetName(), func(ctx context.Context) error {
		w, err := f.workload(ctx, job.GetName())
		if err == nil {
			name = w.GetName()
		}
		return err
	})
	return name
}

// runs waits until MultiKueue has given a job to a worker, in every respect.
func (f *federation) runs(t *testing.T, job client.Object, s *site) {
	t.Helper()
	await(t, "have "+job.GetName()+" on "+s.name, func(ctx context.Context) error {
		w, err := f.workload(ctx, job.GetName())
		if err != nil {
			return err
		}
		cluster, _, _ := unstructured.NestedString(w.Object, "status", "clusterName")
		names, nominated, _ := unstructured.NestedStringSlice(w.Object, "status", "nominatedClusterNames")
		if cluster != s.name || nominated || !isTrue(w, "Admitted") {
			return fmt.Errorf("it is on %q, nominated %v, and has %v", cluster, names, w.Object["status"])
		}
		kind := job.DeepCopyObject().(client.Object)
		return s.Get(ctx, client.ObjectKeyFromObject(job), kind)
	})
}

// nominated waits until one worker is nominated for a job.
func (f *federation) nominated(t *testing.T, job string, s *site) {
	t.Helper()
	await(t, "have "+s.name+" nominated for "+job, func(ctx context.Context) error {
		w, err := f.workload(ctx, job)
		if err != nil {
			return err
		}
		names, _, _ := unstructured.NestedStringSlice(w.Object, "status", "nominatedClusterNames")
		if !slices.Equal(names, []string{s.name}) {
			return fmt.Errorf("nominated are %v", names)
		}
		return nil
	})
}

// clone waits until a worker's clone of a Workload is as wanted.
func (s *site) clone(t *testing.T, workload, what string, is func(*unstructured.Unstructured) bool) {
	t.Helper()
	await(t, "have the clone "+workload+" on "+s.name+" "+what, func(ctx context.Context) error {
		w := kueueObject("Workload", fleet.Namespace, workload)
		err := s.Get(ctx, client.ObjectKeyFromObject(w), w)
		if err == nil && !is(w) {
			err = fmt.Errorf("it is %v", w.Object["status"])
		}
		return err
	})
}

// gone waits until a worker has no clone of a Workload.
func (s *site) gone(t *testing.T, workload string) {
	t.Helper()
	await(t, "have no clone "+workload+" on "+s.name, func(ctx context.Context) error {
		w := kueueObject("Workload", fleet.Namespace, workload)
		if err := s.Get(ctx, client.ObjectKeyFromObject(w), w); err != nil {
			return client.IgnoreNotFound(err)
		}
		return errors.New("there is one")
	})
}

// hold stops a worker's queue, or lets it go on with an empty policy.
func (f *federation) hold(t *testing.T, s *site, policy string) {
	t.Helper()
	queue := kueueObject("ClusterQueue", "", f.queue)
	check.Must(t, s.Patch(t.Context(), queue, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"stopPolicy":%q}}`, policy))))
}

// told waits for an Event about a Workload.
func (f *federation) told(t *testing.T, workload, reason string) string {
	t.Helper()
	var note string
	await(t, "have an Event "+reason+" about "+workload, func(ctx context.Context) error {
		var events eventsv1.EventList
		if err := f.List(ctx, &events, client.InNamespace(fleet.Namespace)); err != nil {
			return err
		}
		for i := range events.Items {
			if e := &events.Items[i]; e.Regarding.Name == workload && e.Reason == reason {
				note = e.Note
				return nil
			}
		}
		return errors.New("there is none")
	})
	return note
}

// remove deletes a job, and waits until no worker has a clone of it.
func (f *federation) remove(t *testing.T, job client.Object, workload string) {
	t.Helper()
	check.Must(t, f.Delete(t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	w := kueueObject("Workload", fleet.Namespace, workload)
	// These clusters have no garbage collector.
	check.Must(t, client.IgnoreNotFound(f.Delete(t.Context(), w)))
	f.east.gone(t, workload)
	f.west.gone(t, workload)
}
