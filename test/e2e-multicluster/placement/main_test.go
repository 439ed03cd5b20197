// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package placement tests where and in which order jobs are placed, with whole processes: a hub and three workers whose
// schedulers say whether a worker was given more than it holds.
package placement

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

// Three nodes with four GPUs, three with eight, and six with one: 42 in all.
const quads, octets, singles = "quads", "octets", "singles"

var y = yard.Suite{
	Options: yard.Options{
		Workers: []yard.Worker{
			worker(quads, yard.GPUNodes("quad", 3, 4, "NVIDIA-A10")),
			worker(octets, yard.GPUNodes("octet", 3, 8, "NVIDIA-H100")),
			worker(singles, yard.GPUNodes("single", 6, 1, "NVIDIA-L4")),
		},
		Progress: yard.Print,
	},
	Timeout: 5 * time.Minute, // for steps that bring hundreds of pods through four clusters on a busy machine
	Poll:    100 * time.Millisecond,
}

func TestMain(m *testing.M) { yard.Main(m, y.Start) }

func worker(name string, nodes clusters.NodeShape) yard.Worker {
	return yard.Worker{Name: name, Labels: map[string]string{"pool": name}, Nodes: []clusters.NodeShape{nodes}}
}

// namespace makes one for the jobs of a test. When the test ends it waits until nothing of them is left.
func namespace(t *testing.T, name string) string {
	t.Helper()
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	check.Must(t, y.Hub.Create(t.Context(), object))
	t.Cleanup(func() {
		all := client.InNamespace(name)
		check.Must(t, y.Hub.DeleteAllOf(context.Background(), yard.Job{Namespace: name}.TrainJob(), all))
		y.Eventually(t, func(g gomega.Gomega) {
			var left v1alpha1.DispatchList
			g.Expect(y.Hub.List(context.Background(), &left, all)).To(gomega.Succeed())
			g.Expect(left.Items).To(gomega.BeEmpty())
		})
	})
	return name
}

// schedulers are what the workers' schedulers have said of the pods of a namespace.
type schedulers struct {
	namespace string

	mu sync.Mutex
	// refused are pods for which there was no node, and bound are pods that have a node. Under mu.
	refused map[string]*refusal
	bound   map[string]bool
	// came says how many jobs of the namespace were already on a worker when a job came there, by worker and job. Under
	// mu.
	came map[string]int
}

// refusal of a pod for which there was no node.
type refusal struct {
	// worker and job of the pod, and the scheduler's words.
	worker, job, words string
	// wanted is what the pod wants, and waiting how many pods of its job had no node.
	wanted  int64
	waiting int
	// free GPUs of the nodes at that time, and the jobs that held the other GPUs.
	free map[string]int64
	held []holding
}

// overtaken is true if all pods of the job would have had nodes without the pods of jobs that came to the worker later.
// A job's pods are made some at a time, and its worker's scheduler gives nodes to whatever pod there is.
func (r *refusal) overtaken(came map[string]int) bool {
	free := maps.Clone(r.free)
	for _, held := range r.held {
		if came[r.worker+"/"+held.job] > came[r.worker+"/"+r.job] {
			free[held.node] += held.count
		}
	}
	var room int64
	for _, left := range free {
		room += max(0, left) / r.wanted
	}
	return room >= int64(r.waiting)
}

// watchSchedulers listens until the test ends, and then fails it if a pod was ever refused.
func watchSchedulers(t *testing.T, namespace string) *schedulers {
	t.Helper()
	s := &schedulers{namespace: namespace, refused: map[string]*refusal{}, bound: map[string]bool{}, came: map[string]int{}}
	var watches sync.WaitGroup
	t.Cleanup(watches.Wait)
	for name, worker := range y.Workers {
		var nodes corev1.NodeList
		check.Must(t, worker.List(t.Context(), &nodes))
		// Of all namespaces: pods of an earlier test may still have the GPUs.
		events, err := worker.Watch(context.Background(), &corev1.PodList{})
		check.Must(t, err)
		jobs, err := worker.Watch(context.Background(), &trainer.TrainJobList{}, client.InNamespace(namespace))
		check.Must(t, err)
		watches.Go(func() { s.follow(name, newGPUs(nodes.Items), events.ResultChan()) })
		watches.Go(func() { s.followJobs(name, jobs.ResultChan()) })
		t.Cleanup(events.Stop)
		t.Cleanup(jobs.Stop)
	}
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for pod, refused := range s.refused {
			if refused.overtaken(s.came) {
				t.Logf("pod %s waited for pods of jobs that came later: %s", pod, refused.words)
			} else {
				t.Errorf("pod %s found no node: %s", pod, refused.words)
			}
		}
	})
	return s
}

func (s *schedulers) follow(worker string, free *gpus, events <-chan watch.Event) {
	for event := range events {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			continue
		}
		free.see(pod, event.Type == watch.Deleted)
		if pod.Namespace == s.namespace {
			s.see(worker, pod, free)
		}
	}
}

func (s *schedulers) followJobs(worker string, events <-chan watch.Event) {
	for event := range events {
		if job, ok := event.Object.(*trainer.TrainJob); ok && event.Type == watch.Added {
			s.mu.Lock()
			s.came[worker+"/"+job.Name] = len(s.came) + 1
			s.mu.Unlock()
		}
	}
}

func (s *schedulers) see(worker string, pod *corev1.Pod, free *gpus) {
	key := worker + "/" + pod.Name
	s.mu.Lock()
	defer s.mu.Unlock()
	if pod.Spec.NodeName != "" {
		s.bound[key] = true
		return
	}
	for _, condition := range pod.Status.Conditions {
		refused := condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable
		// A late scheduler may refuse a pod because of pods that have ended already. Then the worker did not get too much.
		if refused && !free.fits(pod) {
			s.refused[key] = free.refusal(worker, pod, condition.Message)
		}
	}
}

// wait waits until so many pods have had a node.
func (s *schedulers) wait(t *testing.T, want int) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		s.mu.Lock()
		defer s.mu.Unlock()
		g.Expect(s.bound).To(gomega.HaveLen(want), "pods with a node")
	})
}

// gpus are the free GPUs of one worker, in the order of its API server's writes. Its scheduler sees the same, perhaps
// later.
type gpus struct {
	free    map[string]int64           // By node.
	held    map[string]holding         // By pod.
	waiting map[string]map[string]bool // Pods without a node, by job.
}

type holding struct {
	job, node string
	count     int64
}

func newGPUs(nodes []corev1.Node) *gpus {
	g := &gpus{free: map[string]int64{}, held: map[string]holding{}, waiting: map[string]map[string]bool{}}
	for i := range nodes {
		quantity := nodes[i].Status.Allocatable[yard.GPU]
		g.free[nodes[i].Name] = quantity.Value()
	}
	return g
}

func (g *gpus) see(pod *corev1.Pod, deleted bool) {
	key := client.ObjectKeyFromObject(pod).String()
	if held, ok := g.held[key]; ok {
		g.free[held.node] += held.count
		delete(g.held, key)
	}
	job := jobOf(pod)
	delete(g.waiting[job], key)
	switch ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed; {
	case ended || deleted:
	case pod.Spec.NodeName != "":
		g.held[key] = holding{job: job, node: pod.Spec.NodeName, count: wanted(pod)}
		g.free[pod.Spec.NodeName] -= wanted(pod)
	default:
		if g.waiting[job] == nil {
			g.waiting[job] = map[string]bool{}
		}
		g.waiting[job][key] = true
	}
}

// jobOf is the TrainJob of a pod: its JobSet has the same name.
func jobOf(pod *corev1.Pod) string { return pod.Labels[jobsetv1alpha2.JobSetNameKey] }

// refusal of a pod that does not fit.
func (g *gpus) refusal(worker string, pod *corev1.Pod, words string) *refusal {
	job := jobOf(pod)
	return &refusal{
		worker: worker, job: job, words: words, wanted: wanted(pod), waiting: len(g.waiting[job]),
		free: maps.Clone(g.free), held: slices.Collect(maps.Values(g.held)),
	}
}

func (g *gpus) fits(pod *corev1.Pod) bool {
	for _, free := range g.free {
		if free >= wanted(pod) {
			return true
		}
	}
	return false
}

func wanted(pod *corev1.Pod) int64 {
	var all int64
	for i := range pod.Spec.Containers {
		quantity := pod.Spec.Containers[i].Resources.Requests[yard.GPU]
		all += quantity.Value()
	}
	return all
}
