// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package board_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/board"
	"github.com/trainyard/trainyard/internal/hub"
	"github.com/trainyard/trainyard/test/check"
)

// start is the present, because deadlines of connections are by the real clock.
var start = time.Now().Truncate(time.Second)

// world is a board whose caches have what the test puts there.
type world struct {
	*board.Board
	server    *httptest.Server
	clock     *testclock.FakeClock
	informers *informertest.FakeInformers
	caller    *caller
	// hub answers what is read with the rights of the caller.
	hub http.HandlerFunc
}

// caller has some rights, as "verb resource namespace".
type caller struct {
	config *rest.Config

	mu     sync.Mutex
	rights []string // under mu; nil: all
}

func (c *caller) set(rights ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rights = rights
}

func (c *caller) Allows(_ context.Context, a authorizationv1.ResourceAttributes) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := func(namespace string) string { return a.Resource + " " + namespace }
	return c.rights == nil || slices.Contains(c.rights, of("")) || slices.Contains(c.rights, of(a.Namespace)), nil
}

func (c *caller) Hub() (*hub.Hub, error) { return hub.New(c.config, "") }

func (c *caller) Pods(context.Context, types.NamespacedName) (*board.Pods, error) {
	client, err := kubernetes.NewForConfig(c.config)
	return &board.Pods{Client: client, Selector: "jobset.sigs.k8s.io/jobset-name=llama"}, err
}

func (c *caller) Enter(context.Context) (leave func(), ok bool) { return func() {}, true }

func newWorld(t testing.TB, change ...func(*board.Options)) *world {
	t.Helper()
	w := &world{clock: testclock.NewFakeClock(start), caller: &caller{}, hub: http.NotFound}
	behind := httptest.NewServer(http.HandlerFunc(func(to http.ResponseWriter, r *http.Request) { w.hub(to, r) }))
	t.Cleanup(behind.Close)
	w.caller.config = &rest.Config{Host: behind.URL}
	scheme := runtime.NewScheme()
	check.Must(t, v1alpha1.AddToScheme(scheme))
	w.informers = &informertest.FakeInformers{Scheme: scheme}
	options := board.Options{
		Caches: w.informers, Watched: board.Watched{Workers: true, Jobs: true}, Namespace: "team", Clock: w.clock,
		Caller: func(http.ResponseWriter, *http.Request) board.Caller { return w.caller },
	}
	for _, c := range change {
		c(&options)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.Board = board.New(ctx, options)
	w.server = httptest.NewServer(w.Board)
	t.Cleanup(func() {
		cancel()
		w.server.CloseClientConnections()
		w.server.Close()
	})
	w.get(t, "/api/jobs?namespace=team") // The watches begin.
	return w
}

func (w *world) informer(t testing.TB, object client.Object) *controllertest.FakeInformer {
	t.Helper()
	informer, err := w.informers.FakeInformerFor(t.Context(), object)
	check.Must(t, err)
	return informer
}

// put brings an object, or its change.
func (w *world) put(t testing.TB, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		w.informer(t, object).Update(object, object)
	}
}

func (w *world) remove(t testing.TB, object client.Object) {
	t.Helper()
	w.informer(t, object).Delete(object)
}

func (w *world) get(t testing.TB, path string) (code int, body string) {
	t.Helper()
	res, err := http.Get(w.server.URL + path)
	check.Must(t, err)
	defer func() { _ = res.Body.Close() }()
	all, err := io.ReadAll(res.Body)
	check.Must(t, err)
	return res.StatusCode, string(all)
}

// page is a page as a browser gets it.
type page struct {
	Whole bool
	Head  map[string]any
	Items []map[string]any
	Order []string
}

func (p page) names() (names []string) {
	for _, item := range p.Items {
		names = append(names, item["key"].(string))
	}
	return names
}

func (w *world) page(t testing.TB, path string) (p page) {
	t.Helper()
	code, body := w.get(t, path)
	check.Equal(t, http.StatusOK, code, "%s: %s", path, body)
	check.Must(t, json.Unmarshal([]byte(body), &p))
	return p
}

// stream is an open page.
type stream struct {
	lines *bufio.Reader
}

func (w *world) stream(t testing.TB, path string) *stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.server.URL+path, nil)
	check.Must(t, err)
	res, err := http.DefaultClient.Do(r)
	check.Must(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	check.Equal(t, http.StatusOK, res.StatusCode, "%s", path)
	check.Equal(t, "text/event-stream; charset=utf-8", res.Header.Get("Content-Type"), "type")
	return &stream{bufio.NewReader(res.Body)}
}

// next returns the next event.
func (s *stream) next(t testing.TB) (name, data string) {
	t.Helper()
	for {
		line, err := s.lines.ReadString('\n')
		check.Must(t, err)
		switch line = strings.TrimSuffix(line, "\n"); {
		case line == "":
			return name, data
		case strings.HasPrefix(line, "event: "):
			name = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			data = line[len("data: "):]
		}
	}
}

func (s *stream) page(t testing.TB) (p page) {
	t.Helper()
	name, data := s.next(t)
	check.Equal(t, "page", name, "event: %s", data)
	check.Must(t, json.Unmarshal([]byte(data), &p))
	return p
}

func workerCluster(name string, ready metav1.ConditionStatus) *v1alpha1.WorkerCluster {
	w := &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(start)}}
	w.Status.Conditions = []metav1.Condition{{Type: v1alpha1.WorkerClusterReady, Status: ready, Reason: "Connected"}}
	if ready != metav1.ConditionTrue {
		w.Status.Conditions[0].Reason, w.Status.Conditions[0].Message = "Unreachable", "it does not answer"
	}
	return w
}

// newJob returns a TrainJob and its Dispatch, which waits without a worker.
func newJob(namespace, name string, after time.Duration, worker v1alpha1.ClusterName) (*unstructured.Unstructured, *v1alpha1.Dispatch) {
	job := trainjobs.New()
	job.SetNamespace(namespace)
	job.SetName(name)
	job.SetUID(types.UID(namespace + name))
	job.SetCreationTimestamp(metav1.NewTime(start.Add(after)))
	d := &v1alpha1.Dispatch{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	d.Spec.TrainJob = v1alpha1.TrainJobReference{Name: name, UID: job.GetUID()}
	placed := metav1.Condition{Type: v1alpha1.DispatchPlaced, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoFit, Message: "no worker takes it"}
	if worker != "" {
		d.Spec.Cluster, d.Spec.Attempt, d.Status.Attempt = worker, 1, 1
		placed.Status, placed.Reason = metav1.ConditionTrue, v1alpha1.ReasonPlaced
		d.Status.Phase = v1alpha1.PhaseRunning
		d.Status.Conditions = append(d.Status.Conditions, metav1.Condition{Type: v1alpha1.DispatchMirrored, Status: metav1.ConditionTrue, Reason: "Copied"})
	} else {
		d.Status.Explanation = []v1alpha1.ClusterExplanation{{Cluster: "east", Reason: "NoFit", Message: "lacks 8 nvidia.com/gpu"}}
	}
	d.Status.Conditions = append(d.Status.Conditions, placed)
	return job, d
}

func (w *world) job(t testing.TB, namespace, name string, after time.Duration, worker v1alpha1.ClusterName) {
	t.Helper()
	job, d := newJob(namespace, name, after, worker)
	w.put(t, job, d)
}
