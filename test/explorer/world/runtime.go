// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"slices"
	"strconv"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/explorer/memory"
)

// This file simulates a worker: TrainJob to JobSet to one pod, the kubelet and the garbage collector.

const (
	// annotationRuns is how many seconds a job's pod runs, annotationGrace how many it takes to end when it is told to.
	annotationRuns  = "explorer/runs"
	annotationGrace = "explorer/grace"
	// labelOrigin, labelAttempt and labelCopy on a pod say what it belongs to.
	labelOrigin  = "explorer/origin"
	labelAttempt = "explorer/attempt"
	labelCopy    = "explorer/copy"
	annotationAt = "explorer/started"
)

// train plays the TrainJob controller for one job that the cache of an agent shows. Like that controller, it reads a
// job again before it begins the job.
func (a *agent) train(_ context.Context, key types.NamespacedName) (time.Duration, error) {
	if a.worker.down {
		return 0, errLost
	}
	if version := a.worker.server.Get(memory.TrainJob, key); version != nil && a.feed("TrainJobs").view.Get(key) != nil {
		a.worker.train(a, version.Job())
	}
	return 0, nil
}

func (k *Worker) train(a *agent, job *trainer.TrainJob) {
	key, s := client.ObjectKeyFromObject(job), k.server
	if job.DeletionTimestamp != nil || isOver(job) {
		return
	}
	jobSet, pod := s.Get(memory.JobSet, key), s.Get(memory.Pod, key)
	own := jobSet != nil && metav1.IsControlledBy(jobSet.Object, job)
	switch {
	case jobSet != nil && (!own || jobSet.Object.GetDeletionTimestamp() != nil):
		return // It waits for the name.
	case ptr.Deref(job.Spec.Suspend, false):
		if pod != nil && own {
			k.deletePod(key)
		}
	case pod != nil:
	case own:
		k.run(job)
	case k.opens(a, job):
		create(s, newJobSet(job))
		k.run(job)
	}
	k.report(job, own)
}

func (k *Worker) opens(a *agent, job *trainer.TrainJob) bool {
	open, _ := a.replica.Gate(job)
	return open
}

// run creates the pod of a job.
func (k *Worker) run(job *trainer.TrainJob) {
	grace, _ := strconv.ParseInt(job.Annotations[annotationGrace], 10, 64)
	key := client.ObjectKeyFromObject(job)
	create(k.server, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, Name: job.Name,
			Labels: map[string]string{
				jobsetv1alpha2.JobSetNameKey: job.Name, jobsetv1alpha2.JobSetUIDKey: string(k.server.Get(memory.JobSet, key).Object.GetUID()),
				labelOrigin: job.Labels[v1alpha1.LabelOriginUID], labelAttempt: job.Annotations[v1alpha1.AnnotationAttempt],
				labelCopy: string(job.UID),
			},
			Annotations: map[string]string{annotationRuns: job.Annotations[annotationRuns], annotationAt: strconv.FormatInt(int64(k.world.now), 10)},
		},
		Spec:   corev1.PodSpec{TerminationGracePeriodSeconds: &grace},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	})
}

func newJobSet(job *trainer.TrainJob) *unstructured.Unstructured {
	jobSet := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	jobSet.SetGroupVersionKind(jobsetv1alpha2.SchemeGroupVersion.WithKind("JobSet"))
	jobSet.SetNamespace(job.Namespace)
	jobSet.SetName(job.Name)
	jobSet.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "TrainJob", Name: job.Name, UID: job.UID, Controller: ptr.To(true),
	}})
	return jobSet
}

// report writes the status of a job.
func (k *Worker) report(job *trainer.TrainJob, own bool) {
	key := client.ObjectKeyFromObject(job)
	pod, _ := podOf(k.server.Get(memory.Pod, key))
	counts := map[string]any{"name": "node", "active": int64(0), "ready": int64(0), "succeeded": int64(0), "failed": int64(0), "suspended": int64(0)}
	if !own && k.server.Get(memory.JobSet, key) == nil {
		return
	}
	status := map[string]any{"jobsStatus": []any{counts}}
	switch {
	case pod == nil || pod.Labels[labelCopy] != string(job.UID):
	case pod.Status.Phase == corev1.PodSucceeded:
		counts["succeeded"] = int64(1)
		status["conditions"] = []any{condition(trainer.TrainJobComplete)}
	case pod.DeletionTimestamp == nil:
		counts["active"], counts["ready"] = int64(1), int64(1)
	}
	if ptr.Deref(job.Spec.Suspend, false) && status["conditions"] == nil {
		status["conditions"] = []any{condition(trainer.TrainJobSuspended)}
	}
	k.server.Change(memory.TrainJob, key, string(k.name)+"/trainer", func(object client.Object) {
		object.(*unstructured.Unstructured).Object["status"] = status
	})
}

func condition(kind string) map[string]any {
	return map[string]any{"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": "2030-01-01T00:00:00Z"}
}

func isOver(job *trainer.TrainJob) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c metav1.Condition) bool {
		return (c.Type == trainer.TrainJobComplete || c.Type == trainer.TrainJobFailed) && c.Status == metav1.ConditionTrue
	})
}

func podOf(version *memory.Version) (*corev1.Pod, bool) {
	if version == nil {
		return nil, false
	}
	return version.Object.(*corev1.Pod), true
}

func (k *Worker) deletePod(key client.ObjectKey) {
	_ = k.server.Delete(memory.Pod, key, &client.DeleteOptions{}, string(k.name)+"/jobset") // It is there.
}

// settle lets kubelet, JobSet and garbage collector do what is due, and returns when something is due next.
func (k *Worker) settle() time.Duration {
	next := never
	for _, version := range k.server.List(memory.Pod) {
		next = min(next, k.settlePod(version.Object.(*corev1.Pod)))
	}
	if k.down {
		return next
	}
	for _, version := range k.server.List(memory.JobSet) {
		key := client.ObjectKeyFromObject(version.Object)
		owner := k.server.Get(memory.TrainJob, key)
		if owner != nil && metav1.IsControlledBy(version.Object, owner.Object) && owner.Object.GetDeletionTimestamp() == nil {
			continue
		}
		if pod, ok := podOf(k.server.Get(memory.Pod, key)); !ok {
			k.server.Remove(memory.JobSet, key, string(k.name)+"/gc")
		} else if pod.DeletionTimestamp == nil {
			k.deletePod(key)
			next = min(next, k.settlePod(k.server.Get(memory.Pod, key).Object.(*corev1.Pod)))
		}
	}
	for _, version := range k.server.List(memory.TrainJob) {
		key := client.ObjectKeyFromObject(version.Object)
		if version.Object.GetDeletionTimestamp() != nil && k.server.Get(memory.JobSet, key) == nil && k.server.Get(memory.Pod, key) == nil {
			k.server.Change(memory.TrainJob, key, string(k.name)+"/gc", func(object client.Object) {
				object.SetFinalizers(slices.DeleteFunc(object.GetFinalizers(), func(f string) bool { return f == metav1.FinalizerDeleteDependents }))
			})
		}
	}
	return next
}

// settlePod ends a pod whose time has come. A pod ends also while nobody can see it.
func (k *Worker) settlePod(pod *corev1.Pod) time.Duration {
	key, now := client.ObjectKeyFromObject(pod), k.world.now
	if pod.DeletionTimestamp != nil {
		if due := pod.DeletionTimestamp.Sub(k.server.Wall(0)); due > now {
			return due
		}
		if !k.down {
			k.server.Remove(memory.Pod, key, string(k.name)+"/kubelet")
		}
		return never
	}
	if pod.Status.Phase != corev1.PodRunning {
		return never
	}
	if due := endOf(pod); due > now {
		return due
	}
	if !k.down {
		k.server.Change(memory.Pod, key, string(k.name)+"/kubelet", func(object client.Object) {
			object.(*corev1.Pod).Status.Phase = corev1.PodSucceeded
		})
	}
	return never
}

// endOf is when a pod ends by itself.
func endOf(pod *corev1.Pod) time.Duration {
	at, _ := strconv.ParseInt(pod.Annotations[annotationAt], 10, 64)
	seconds, _ := strconv.ParseInt(pod.Annotations[annotationRuns], 10, 64)
	return time.Duration(at) + time.Duration(seconds)*time.Second
}

// isAlive is true for a pod that runs, whatever its API server says.
func (k *Worker) isAlive(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && endOf(pod) > k.world.now &&
		(pod.DeletionTimestamp == nil || pod.DeletionTimestamp.Sub(k.server.Wall(0)) > k.world.now)
}
