// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection_test

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/stage"
)

// Kubernetes' garbage collector deletes everything that a finished copy has owned, however the copy is deleted. A
// deletion in the background takes less than half of the requests.
func TestWorkersGarbageCollectorDeletesTheRest(t *testing.T) {
	s := newScene(t)
	s.addCollectedWorker(t)
	requests := map[string]int{}
	for _, mode := range []string{"Foreground", "Background"} {
		s.options[collectedName].WorkerCache = s.Worker(collectedName).Connection.Cache()
		if mode == "Foreground" {
			s.options[collectedName].WorkerCache = s.reporting(t).Cache() // The manager does not know whether pods are alive.
		}
		s.restart()
		owned := s.finishedCopyWithPods(t)
		log := s.Worker(collectedName).Cluster.AuditLog()
		_, from := deletionRequests(t, log, 0)
		s.Clock.Step(retention)
		s.collectOn(t, collectedName, s.key)
		for _, object := range owned {
			eventually(t, mode, func(g gomega.Gomega) {
				err := s.Worker(collectedName).Admin.Get(t.Context(), client.ObjectKeyFromObject(object), object)
				g.Expect(client.IgnoreNotFound(err)).To(gomega.Succeed())
				g.Expect(err).To(gomega.HaveOccurred())
			})
		}
		requests[mode], _ = deletionRequests(t, log, from)
		must(t, s.Hub.Admin.Delete(t.Context(), s.dispatch(t)))
		must(t, s.Hub.Admin.Delete(t.Context(), read(t, s.Hub.Admin, s.key)))
	}
	t.Logf("Requests of a deletion: %v", requests)
	if requests["Background"] == 0 || 2*requests["Background"] > requests["Foreground"] {
		t.Errorf("requests of a deletion: %v, want less than half in the background", requests)
	}
}

// collectedName is the worker that has a garbage collector.
const collectedName = v1alpha1.ClusterName("collected")

// addCollectedWorker starts a worker with a garbage collector and an audit log, for this scene only.
func (s *scene) addCollectedWorker(t *testing.T) {
	t.Helper()
	collected, err := stage.StartWith(t.Context(), func(o *clusters.Options) {
		o.GarbageCollector, o.Audit = o.Name != "hub", true
		o.Dir = filepath.Join(t.TempDir(), o.Name)
	}, string(collectedName))
	must(t, err)
	t.Cleanup(func() { must(t, collected.Stop()) })
	server := collected.Workers[0]
	must(t, server.Admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}}))
	server.Join(s.Fleet, collectedName)
	t.Cleanup(func() { s.Fleet.Remove(collectedName) })
	stage.AwaitConnected(t, server.Connection)
	own := *s.Stage
	own.Workers = append(slices.Clone(own.Workers), server)
	s.Stage = &own
	options := *s.options[workerName]
	options.Cluster, options.ClusterID, options.Worker = collectedName, server.ID, server.Connection
	s.options[collectedName] = &options
	s.restart()
}

// finishedCopyWithPods creates and returns a finished copy with its JobSet, Jobs and pods.
func (s *scene) finishedCopyWithPods(t *testing.T) []client.Object {
	t.Helper()
	admin := s.Worker(collectedName).Admin
	job := s.submit(t)
	s.finish(t, s.place(t, job.GetUID(), collectedName, 1))
	copy := s.createCopyOn(t, collectedName, job.GetUID(), "1")
	s.completeCopy(t, collectedName, copy)
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: s.key.Namespace, Name: name} }
	own := func(owner, object client.Object) {
		t.Helper()
		gvk, err := apiutil.GVKForObject(owner, s.Scheme)
		must(t, err)
		object.SetOwnerReferences([]metav1.OwnerReference{{
			APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: owner.GetName(), UID: owner.GetUID(),
			Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
		}})
		must(t, admin.Create(t.Context(), object))
	}
	once := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}},
	}
	jobSet := newJobSet()
	jobSet.SetNamespace(s.key.Namespace)
	jobSet.SetName(s.key.Name)
	own(copy, jobSet)
	service := &corev1.Service{ObjectMeta: meta("service"), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}}
	own(jobSet, service)
	node := &batchv1.Job{ObjectMeta: meta("node-0")}
	node.Spec.Template.Spec = once
	own(jobSet, node)
	pod := &corev1.Pod{ObjectMeta: meta("node-0-0"), Spec: once}
	pod.Labels = map[string]string{"jobset.sigs.k8s.io/jobset-name": s.key.Name}
	own(node, pod)
	pod.Status.Phase = corev1.PodSucceeded
	must(t, admin.Status().Update(t.Context(), pod))
	eventually(t, "worker's cache of pods", func(g gomega.Gomega) {
		seen := &corev1.Pod{}
		cache := s.Worker(collectedName).Connection.Cache()
		g.Expect(cache.Get(t.Context(), client.ObjectKeyFromObject(pod), seen)).To(gomega.Succeed())
		g.Expect(seen.Status.Phase).To(gomega.Equal(corev1.PodSucceeded))
	})
	return []client.Object{copy, jobSet, service, node, pod}
}

// deletionRequests counts the requests to the API server for deletions, from the hub's side and the garbage collector,
// from an offset of its audit log on. It returns the offset of the log's end.
func deletionRequests(t *testing.T, log string, from int64) (count int, end int64) {
	t.Helper()
	file, err := os.Open(log)
	must(t, err)
	defer func() { _ = file.Close() }()
	_, err = file.Seek(from, io.SeekStart)
	must(t, err)
	lines := bufio.NewReader(file)
	for end = from; ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return count, end // The API server is still writing the rest.
		}
		end += int64(len(line))
		var event auditv1.Event
		must(t, json.Unmarshal(line, &event))
		collector := event.User.Username == "system:kube-controller-manager" && event.Verb != "list" && event.Verb != "watch"
		if event.Stage == auditv1.StageResponseComplete && event.ObjectRef != nil && (collector || event.Verb == "delete") {
			count++
		}
	}
}
