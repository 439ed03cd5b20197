// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"sync"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/test/yard"
)

// schedulers are what the workers' schedulers have said of the pods of a namespace.
type schedulers struct {
	namespace string

	mu sync.Mutex
	// refused are pods for which there was no node, with the scheduler's words, and bound those that have one. Under mu.
	refused map[string]string
	bound   map[string]bool
}

// watchSchedulers listens until the test ends, and then fails it if a pod was ever refused.
func watchSchedulers(t *testing.T, namespace string) *schedulers {
	t.Helper()
	s := &schedulers{namespace: namespace, refused: map[string]string{}, bound: map[string]bool{}}
	var watches sync.WaitGroup
	t.Cleanup(watches.Wait)
	for name, worker := range workers {
		var nodes corev1.NodeList
		if err := worker.List(t.Context(), &nodes); err != nil {
			t.Fatal(err)
		}
		// Of all namespaces: pods of an earlier test may still have the GPUs.
		events, err := worker.Watch(context.Background(), &corev1.PodList{})
		if err != nil {
			t.Fatal(err)
		}
		watches.Go(func() { s.follow(name, newGPUs(nodes.Items), events.ResultChan()) })
		t.Cleanup(events.Stop)
	}
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for pod, words := range s.refused {
			t.Errorf("pod %s found no node: %s", pod, words)
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
			s.see(worker+"/"+pod.Name, pod, free)
		}
	}
}

func (s *schedulers) see(key string, pod *corev1.Pod, free *gpus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pod.Spec.NodeName != "" {
		s.bound[key] = true
		return
	}
	for _, condition := range pod.Status.Conditions {
		refused := condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable
		// A scheduler that is late may refuse a pod for others that have ended before: the worker was not given too much then.
		if refused && !free.fits(pod) {
			s.refused[key] = condition.Message
		}
	}
}

// wait waits until so many pods have had a node.
func (s *schedulers) wait(t *testing.T, want int) {
	t.Helper()
	eventually(t, func(g gomega.Gomega) {
		s.mu.Lock()
		defer s.mu.Unlock()
		g.Expect(s.bound).To(gomega.HaveLen(want), "pods with a node")
	})
}

// gpus are those of one worker that no pod has, in the order of its API server's writes: what its scheduler knows sooner or later.
type gpus struct {
	free map[string]int64    // By node.
	held map[string]*holding // By pod.
}

type holding struct {
	node  string
	count int64
}

func newGPUs(nodes []corev1.Node) *gpus {
	g := &gpus{free: map[string]int64{}, held: map[string]*holding{}}
	for i := range nodes {
		quantity := nodes[i].Status.Allocatable[yard.GPU]
		g.free[nodes[i].Name] = quantity.Value()
	}
	return g
}

func (g *gpus) see(pod *corev1.Pod, deleted bool) {
	key := client.ObjectKeyFromObject(pod).String()
	if held := g.held[key]; held != nil {
		g.free[held.node] += held.count
		delete(g.held, key)
	}
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if pod.Spec.NodeName != "" && !ended && !deleted {
		g.held[key] = &holding{node: pod.Spec.NodeName, count: wanted(pod)}
		g.free[pod.Spec.NodeName] -= wanted(pod)
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
