// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/logarchive"
	"github.com/trainyard/trainyard/remote/bounded"
	"github.com/trainyard/trainyard/test/check"
)

const workerID = "worker-id"

// workerServer is a worker whose pods and logs a test chooses. The end-to-end tests have real API servers: this one can
// hang, lie and fail.
type workerServer struct {
	mu   sync.Mutex
	pods []corev1.Pod // under mu
	// log answers a request for a log. It is called concurrently.
	log      func(w http.ResponseWriter, r *http.Request, container string)
	id       string
	requests atomic.Int64
}

func (s *workerServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	answer := func(o any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(o)
	}
	switch {
	case r.URL.Path == "/api/v1/namespaces/kube-system":
		answer(corev1.Namespace{TypeMeta: metav1.TypeMeta{Kind: "Namespace", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{UID: types.UID(s.id)}})
	case strings.HasSuffix(r.URL.Path, "/log"):
		s.log(w, r, r.URL.Query().Get("container"))
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		answer(corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: s.pods})
	}
}

// scene is one job on a worker.
type scene struct {
	worker     *workerServer
	hub        client.Client
	onWorker   client.Client
	archive    *logarchive.Archive
	reconciler *Reconciler
}

func newScene(t *testing.T, d *v1alpha1.Dispatch, end string) *scene {
	t.Helper()
	s := &scene{worker: &workerServer{id: workerID, pods: []corev1.Pod{podNamed("job-node-0-0-aaaaa", true)}}}
	s.worker.log = func(w http.ResponseWriter, _ *http.Request, _ string) { _, _ = fmt.Fprint(w, "printed\n") }
	server := httptest.NewServer(s.worker)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	scheme := runtime.NewScheme()
	check.Must(t, v1alpha1.AddToScheme(scheme))
	check.Must(t, clientgoscheme.AddToScheme(scheme))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "ns-1"}}
	s.hub = fake.NewClientBuilder().WithScheme(scheme).WithObjects(namespace, d).WithStatusSubresource(d).Build()
	copied := onWorker("2", end)
	copied.SetNamespace("team")
	copied.SetName("job")
	set := newJobSet()
	set.SetNamespace("team")
	set.SetName("job")
	set.SetUID("set")
	set.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "TrainJob", Name: "job", UID: "copy", Controller: new(true)}})
	s.onWorker = fake.NewClientBuilder().WithScheme(scheme).WithObjects(copied, set).Build()
	dir, err := logarchive.NewDir(t.TempDir())
	check.Must(t, err)
	s.archive = &logarchive.Archive{Store: dir}
	s.reconciler = NewReconciler(t.Context(), Options{
		Cluster: "east", ClusterID: workerID, Hub: s.hub, Worker: s.onWorker, Archive: s.archive, Size: 1 << 10, Slots: NewSlots(), Clock: clock.RealClock{},
		Connect: func(context.Context) (kubernetes.Interface, error) {
			return bounded.Kubernetes(&rest.Config{Host: server.URL, QPS: -1}, bounded.Limits{Timeout: check.Patience})
		},
	})
	return s
}

func podNamed(name string, ended bool) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
	pod.Spec.Containers = []corev1.Container{{Name: "node"}}
	status := corev1.ContainerStatus{Name: "node", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	if ended {
		status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	return pod
}

func (s *scene) reconcile(t *testing.T) error {
	t.Helper()
	_, err := s.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "team", Name: "job"}})
	return err
}

// index waits for the index of attempt 2.
func (s *scene) index(t *testing.T) (x *logarchive.Index) {
	t.Helper()
	check.Eventually(t, "there is an index", func(g gomega.Gomega) {
		data, err := s.archive.Store.Get(t.Context(), "team/job/origin/2/index.json", 1<<20)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		x = &logarchive.Index{}
		check.Must(t, json.Unmarshal(data, x))
	})
	return x
}

func (s *scene) text(t *testing.T, x *logarchive.Index, pod int) string {
	t.Helper()
	text, err := s.archive.Read(t.Context(), x.Attempt, x.Pods[pod].Name, &x.Pods[pod].Containers[0])
	check.Must(t, err)
	return string(text)
}

// TestReadOnce: the logs of an ended job are read once, also by the next process.
func TestReadOnce(t *testing.T) {
	s := newScene(t, placed(copied, finished), "Failed")
	check.Must(t, s.reconcile(t))
	x := s.index(t)
	check.Equal(t, "Failed", x.Reason, "reason")
	check.Equal(t, "printed\n", s.text(t, x, 0), "log")
	check.Equal(t, true, x.Pods[0].Containers[0].Whole, "whole")
	asked := s.worker.requests.Load()
	s.reconciler = NewReconciler(t.Context(), s.reconciler.Options)
	check.Must(t, s.reconcile(t))
	check.Equal(t, asked, s.worker.requests.Load(), "requests")
}

// TestWhyMissing: what cannot be read is said, and the rest is kept.
func TestWhyMissing(t *testing.T) {
	s := newScene(t, placed(copied, finished), "Failed")
	pending := podNamed("job-node-0-3-aaaaa", true)
	pending.Status.ContainerStatuses = nil
	evil := podNamed("../../evil", true)
	s.worker.pods = []corev1.Pod{
		podNamed("job-node-0-0-aaaaa", true), podNamed("job-node-0-1-aaaaa", true), podNamed("job-node-0-2-aaaaa", true), pending, evil,
	}
	s.worker.log = func(w http.ResponseWriter, r *http.Request, _ string) {
		code := http.StatusOK
		switch {
		case strings.Contains(r.URL.Path, "0-1-aaaaa"):
			code = http.StatusForbidden
		case strings.Contains(r.URL.Path, "0-2-aaaaa"):
			code = http.StatusNotFound
		}
		w.WriteHeader(code)
		_, _ = fmt.Fprint(w, "printed\n")
	}
	check.Must(t, s.reconcile(t))
	x := s.index(t)
	got := map[string]string{}
	for _, p := range x.Pods {
		got[p.Name] = p.Containers[0].Missing
	}
	for name, want := range map[string]string{
		"job-node-0-0-aaaaa": "", "job-node-0-1-aaaaa": "kubectl trainyard join east", "job-node-0-2-aaaaa": "the pod was gone",
		"job-node-0-3-aaaaa": "had not started",
	} {
		if !strings.Contains(got[name], want) || (want == "") != (got[name] == "") {
			t.Errorf("of %s is said %q, want %q", name, got[name], want)
		}
	}
	if _, listed := got["../../evil"]; listed {
		t.Error("a pod whose name is none is in the index")
	}
}

// TestShortLines: of a log of short lines as much is kept as of any other.
func TestShortLines(t *testing.T) {
	s := newScene(t, placed(copied, finished), "Failed")
	s.worker.log = func(w http.ResponseWriter, r *http.Request, _ string) {
		lines, err := strconv.Atoi(r.URL.Query().Get("tailLines"))
		check.Must(t, err)
		_, _ = fmt.Fprint(w, strings.Repeat("x\n", min(lines, 10_000)))
	}
	check.Must(t, s.reconcile(t))
	x := s.index(t)
	check.Equal(t, int64(1<<10-len("x\n")), x.Pods[0].Containers[0].Bytes, "bytes: the first line may be cut")
	check.Equal(t, false, x.Pods[0].Containers[0].Whole, "whole")
}

// TestAnotherCluster: nothing is read from another cluster at the worker's address.
func TestAnotherCluster(t *testing.T) {
	s := newScene(t, placed(copied, finished), "Failed")
	s.worker.id = "another"
	if err := s.reconcile(t); err == nil {
		t.Error("the logs of another cluster are read")
	}
	check.Equal(t, int64(1), s.worker.requests.Load(), "requests")
}

// TestWorkerHangs: a worker that does not answer keeps no eviction, and not Reconcile.
func TestWorkerHangs(t *testing.T) {
	s := newScene(t, placed(copied, evicted(v1alpha1.EvictionDrained)), "")
	s.worker.pods = []corev1.Pod{podNamed("job-node-0-0-aaaaa", false)}
	s.worker.log = func(_ http.ResponseWriter, r *http.Request, _ string) { <-r.Context().Done() }
	began := time.Now()
	check.Must(t, s.reconcile(t))
	check.Must(t, s.reconcile(t)) // It is followed already.
	if took := time.Since(began); took > check.Patience/2 {
		t.Errorf("Reconcile took %s", took)
	}
}

// TestFollowed: of an evicted job is kept what its pods print until they end. The index is written then, and not before.
func TestFollowed(t *testing.T) {
	s := newScene(t, placed(copied, evicted(v1alpha1.EvictionDrained)), "")
	for i := range followsOfWorker + 3 {
		s.worker.pods = append(s.worker.pods, podNamed(fmt.Sprintf("job-node-0-%d-bbbbb", i+1), false))
	}
	release := make(chan struct{})
	var follow, once atomic.Int64
	s.worker.log = func(w http.ResponseWriter, r *http.Request, _ string) {
		_, _ = fmt.Fprint(w, "begun\n")
		if r.URL.Query().Get("follow") != "true" {
			once.Add(1)
			return
		}
		follow.Add(1)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-release:
			_, _ = fmt.Fprint(w, "saved\n")
		case <-r.Context().Done():
		}
	}
	check.Must(t, s.reconcile(t))
	check.Eventually(t, "the logs are read", func(g gomega.Gomega) {
		g.Expect(follow.Load()).To(gomega.Equal(int64(followsOfWorker)))
		g.Expect(once.Load()).To(gomega.Equal(int64(4)))
	})
	has, err := s.archive.Has(t.Context(), attemptOf(placed()))
	check.Equal(t, false, has || err != nil, "there is an index although pods run")
	for i := range s.worker.pods {
		s.worker.pods[i] = podNamed(s.worker.pods[i].Name, true)
	}
	close(release)
	x := s.index(t)
	check.Equal(t, "Drained", x.Reason, "reason")
	saved := 0
	for i := range x.Pods {
		if strings.HasSuffix(s.text(t, x, i), "saved\n") {
			saved++
		}
	}
	check.Equal(t, 20, len(x.Pods), "pods")
	if names := x.Pods; !slices.ContainsFunc(names, func(p logarchive.Pod) bool { return p.Containers[0].Whole }) {
		t.Errorf("no log is whole: %v", names)
	}
	t.Logf("%d of %d logs have what was printed at the end", saved, len(x.Pods))
}

// TestTakenBack: the logs of an attempt that goes on after all are not closed: they are kept when it ends.
func TestTakenBack(t *testing.T) {
	s := newScene(t, placed(copied, evicted(v1alpha1.EvictionDrained)), "")
	s.worker.log = func(w http.ResponseWriter, _ *http.Request, _ string) {
		d := &v1alpha1.Dispatch{}
		check.Must(t, s.hub.Get(context.WithoutCancel(t.Context()), types.NamespacedName{Namespace: "team", Name: "job"}, d))
		d.Spec.Eviction = nil
		check.Must(t, s.hub.Update(context.WithoutCancel(t.Context()), d))
		_, _ = fmt.Fprint(w, "begun\n")
	}
	check.Must(t, s.reconcile(t))
	check.Eventually(t, "it is followed no more", func(g gomega.Gomega) {
		s.reconciler.mu.Lock()
		defer s.reconciler.mu.Unlock()
		g.Expect(s.reconciler.followed).To(gomega.BeEmpty())
	})
	has, err := s.archive.Has(t.Context(), attemptOf(placed()))
	check.Equal(t, false, has || err != nil, "there is an index")
}

// TestLost: what is lost is said, and is no reason to ask the worker.
func TestLost(t *testing.T) {
	s := newScene(t, placed(copied, over(v1alpha1.OutcomeWorkerLost)), "")
	check.Must(t, s.reconcile(t))
	x := s.index(t)
	if !strings.Contains(x.Missing, `worker "east" was lost`) {
		t.Errorf("the index says %q", x.Missing)
	}
	check.Equal(t, int64(0), s.worker.requests.Load(), "requests")
}
