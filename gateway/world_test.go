// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/kubeconfigs"
	"github.com/trainyard/trainyard/logarchive"
	"github.com/trainyard/trainyard/test/check"
)

const (
	hubID, workerID = "hub-id", "worker-id"
	westID          = "west-id"
	good            = "good-token"
	workerToken     = "token-of-the-hub"
	pod             = "job-node-0-0-abcde"
)

// request is what a server has received.
type request struct {
	method, uri, body string
	header            http.Header
}

// recorder is a server that keeps what it receives. The tests of the answers use real API servers: these servers are
// here to see what arrives, and to be evil.
type recorder struct {
	*httptest.Server
	mu       sync.Mutex
	received []request // under mu
}

func newRecorder(t *testing.T, handler http.HandlerFunc) *recorder {
	t.Helper()
	r := &recorder{}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body := ""
		if req.Header.Get("Upgrade") == "" {
			all, _ := io.ReadAll(req.Body)
			body, req.Body = string(all), io.NopCloser(bytes.NewReader(all))
		}
		r.mu.Lock()
		r.received = append(r.received, request{req.Method, req.RequestURI, body, req.Header.Clone()})
		r.mu.Unlock()
		handler(w, req)
	}))
	r.Config.ErrorLog = log.New(io.Discard, "", 0)
	r.EnableHTTP2 = true
	r.StartTLS()
	t.Cleanup(r.Close)
	return r
}

func (r *recorder) all() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]request(nil), r.received...)
}

func (r *recorder) config(token string) *rest.Config {
	return &rest.Config{Host: r.URL, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

func answerJSON(w http.ResponseWriter, o any) {
	w.Header().Set("Content-Type", typeJSON)
	_ = json.NewEncoder(w).Encode(o)
}

// hubServer lets the good token do everything, and has no objects.
func hubServer(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+good {
		w.WriteHeader(http.StatusUnauthorized)
		answerJSON(w, status(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized"))
		return
	}
	switch {
	case strings.Contains(r.URL.Path, "selfsubjectaccessreviews"):
		answerJSON(w, authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}})
	case strings.Contains(r.URL.Path, "selfsubjectreviews"):
		answerJSON(w, authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "ada"}}})
	case strings.HasSuffix(r.URL.Path, "/pods") || strings.HasSuffix(r.URL.Path, "/events"):
		answerJSON(w, map[string]any{"kind": "List", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": "7"}, "items": []any{}})
	default:
		w.WriteHeader(http.StatusNotFound)
		answerJSON(w, status(http.StatusNotFound, metav1.StatusReasonNotFound, "not found"))
	}
}

// workerServer has the copy of job, its JobSet and its pod.
type workerServer struct {
	// evil answers first, and says whether it has answered.
	evil func(w http.ResponseWriter, r *http.Request) bool
	// hub answers in the place of hubServer, if it is not nil.
	hub http.HandlerFunc
	// uid is the UID of the JobSet that the pod names.
	uid string
	// archive is the gateway's archive of logs. nil: there is none.
	archive *logarchive.Archive
	// change changes the options of the gateway, if it is not nil.
	change func(*Options)
	// id is the cluster, attempt the attempt of the copy, and pods are the names of its pods. Their default is that of east.
	id      types.UID
	attempt string
	pods    []string
	// west is a second worker. nil: there is none.
	west *workerServer
	// answerTimeout is the gateway's, ten seconds by default.
	answerTimeout time.Duration
}

func (s *workerServer) setDefaults() {
	s.uid = cmp.Or(s.uid, "jobset-uid")
	s.id = cmp.Or(s.id, workerID)
	s.attempt = cmp.Or(s.attempt, "1")
	s.answerTimeout = cmp.Or(s.answerTimeout, 10*time.Second)
	if s.pods == nil {
		s.pods = []string{pod}
	}
	if s.hub == nil {
		s.hub = hubServer
	}
}

func metaOf(namespace, name, uid string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid), ResourceVersion: "5"}
}

func (s *workerServer) pod(namespace, name string) *corev1.Pod {
	p := &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: metaOf(namespace, name, "pod-uid")}
	p.Labels = map[string]string{"jobset.sigs.k8s.io/jobset-name": "job", "jobset.sigs.k8s.io/jobset-uid": s.uid}
	return p
}

func (s *workerServer) serve(w http.ResponseWriter, r *http.Request) {
	if s.evil != nil && s.evil(w, r) {
		return
	}
	controller := true
	switch parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/"); {
	case r.URL.Path == "/api/v1/namespaces/kube-system":
		answerJSON(w, corev1.Namespace{TypeMeta: metav1.TypeMeta{Kind: "Namespace", APIVersion: "v1"}, ObjectMeta: metaOf("", "kube-system", string(s.id))})
	case strings.HasSuffix(r.URL.Path, "/jobsets/job"):
		m := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}, ObjectMeta: metaOf("team", "job", "jobset-uid")}
		m.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "TrainJob", Name: "job", UID: "copy-uid", Controller: &controller,
		}}
		answerJSON(w, m)
	case strings.HasSuffix(r.URL.Path, "/trainjobs/job"):
		m := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}, ObjectMeta: metaOf("team", "job", "copy-uid")}
		m.Labels = map[string]string{v1alpha1.LabelHub: hubID, v1alpha1.LabelOriginUID: "origin-uid"}
		m.Annotations = map[string]string{v1alpha1.AnnotationAttempt: s.attempt}
		answerJSON(w, m)
	case r.URL.Path == "/api/v1/namespaces/team/pods":
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "9"}}
		for _, name := range s.pods {
			list.Items = append(list.Items, *s.pod("team", name))
		}
		answerJSON(w, list)
	case strings.HasSuffix(r.URL.Path, "/events"):
		answerJSON(w, corev1.EventList{TypeMeta: metav1.TypeMeta{Kind: "EventList", APIVersion: "v1"}})
	case len(parts) == 6 && parts[4] == "pods":
		answerJSON(w, s.pod(parts[3], parts[5]))
	case strings.HasSuffix(r.URL.Path, "/log"):
		_, _ = io.WriteString(w, "printed\n")
	default:
		w.WriteHeader(http.StatusNotFound)
		answerJSON(w, status(http.StatusNotFound, metav1.StatusReasonNotFound, "not found"))
	}
}

// world is a gateway between a hub and a worker that has one job.
type world struct {
	hub, worker *recorder
	// west is nil if there is one worker.
	west       *recorder
	gateway    *httptest.Server
	records    client.Client
	dispatches *controllertest.FakeInformer
	informers  *informertest.FakeInformers
}

// loader has the kubeconfigs by their paths.
type loader map[string]*rest.Config

// Load implements Loader.
func (l loader) Load(_ context.Context, connection v1alpha1.Connection) (*kubeconfigs.Credentials, error) {
	return &kubeconfigs.Credentials{Config: l[connection.KubeconfigPath], Fingerprint: "one"}, nil
}

// clusterOf is the WorkerCluster of a worker.
func clusterOf(name string, id types.UID) *v1alpha1.WorkerCluster {
	cluster := &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	cluster.Spec.Connection.KubeconfigPath, cluster.Status.ClusterID = "/"+name, id
	return cluster
}

func (w *world) loader() loader {
	l := loader{"/east": w.worker.config(workerToken)}
	if w.west != nil {
		l["/west"] = w.west.config(workerToken)
	}
	return l
}

// place changes where the job runs.
func (w *world) place(t *testing.T, at v1alpha1.ClusterName, id types.UID, attempt int32) {
	t.Helper()
	d := &v1alpha1.Dispatch{}
	check.Must(t, w.records.Get(t.Context(), types.NamespacedName{Namespace: "team", Name: "job"}, d))
	before := d.DeepCopy()
	d.Spec.Cluster, d.Spec.ClusterID, d.Spec.Attempt = at, id, attempt
	check.Must(t, w.records.Update(t.Context(), d))
	w.dispatches.Update(before, d)
}

func newWorld(t *testing.T, s *workerServer) *world {
	t.Helper()
	s.setDefaults()
	w := &world{hub: newRecorder(t, s.hub), worker: newRecorder(t, s.serve)}
	scheme := runtime.NewScheme()
	check.Must(t, v1alpha1.AddToScheme(scheme))
	check.Must(t, corev1.AddToScheme(scheme))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "ns-1"}}
	d := &v1alpha1.Dispatch{ObjectMeta: metaOf("team", "job", "dispatch-uid")}
	d.ResourceVersion = ""
	d.Spec.Cluster, d.Spec.ClusterID, d.Spec.Attempt = "east", workerID, 1
	d.Spec.TrainJob = v1alpha1.TrainJobReference{Name: "job", UID: "origin-uid"}
	objects := []client.Object{namespace, d, clusterOf("east", workerID)}
	if s.west != nil {
		s.west.id = westID
		s.west.setDefaults()
		w.west = newRecorder(t, s.west.serve)
		objects = append(objects, clusterOf("west", westID))
	}
	w.records = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	informers := &informertest.FakeInformers{Scheme: scheme}
	options := Options{
		Config: w.hub.config("token-of-the-manager"), Hub: w.records, Caches: informers, Loader: w.loader(), HubID: hubID,
		AnswerTimeout: s.answerTimeout, Archive: s.archive, Clock: clock.RealClock{}, Logger: logr.Discard(),
	}
	if s.change != nil {
		s.change(&options)
	}
	g, err := New(t.Context(), options)
	check.Must(t, err)
	informer, err := informers.FakeInformerFor(t.Context(), &v1alpha1.Dispatch{})
	check.Must(t, err)
	w.dispatches, w.informers = informer, informers
	w.dispatches.Add(d)
	w.gateway = httptest.NewUnstartedServer(g)
	w.gateway.Config.ErrorLog = log.New(io.Discard, "", 0)
	w.gateway.StartTLS()
	t.Cleanup(w.gateway.Close)
	return w
}

// handler is the gateway itself.
func (w *world) handler() *Gateway { return w.gateway.Config.Handler.(*Gateway) }

// answer is what a client gets.
type answer struct {
	code   int
	body   string
	header http.Header
}

// send sends a request with a token. header has pairs of names and values.
func (w *world) send(t *testing.T, method, path string, header ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, w.gateway.URL+path, nil)
	check.Must(t, err)
	r.Header.Set("Authorization", "Bearer "+good)
	for i := 0; i < len(header); i += 2 {
		if r.Header.Set(header[i], header[i+1]); header[i+1] == "" {
			r.Header.Del(header[i])
		}
	}
	res, err := w.gateway.Client().Do(r)
	check.Must(t, err)
	defer func() { _ = res.Body.Close() }()
	body, _ := io.ReadAll(res.Body) // What was cut is a result, too.
	return answer{res.StatusCode, string(body), res.Header}
}

// streamOf answers a watch with the events that come out of a channel, until the client goes or the channel is closed.
func streamOf(w http.ResponseWriter, r *http.Request, events <-chan any) {
	w.Header().Set("Content-Type", typeJSON)
	to := http.NewResponseController(w)
	for {
		if to.Flush() != nil {
			return
		}
		select {
		case event, more := <-events:
			if !more || json.NewEncoder(w).Encode(event) != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// isWatch says what an API server takes for a watch of pods.
func isWatch(r *http.Request) bool {
	return strings.Contains(r.URL.Path, "/watch/") || strings.HasSuffix(r.URL.Path, "/pods") && r.URL.Query().Get("watch") != ""
}

// watchedHub is hubServer with watches of pods that bring these events.
func watchedHub(events <-chan any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !isWatch(r) || r.Header.Get("Authorization") != "Bearer "+good {
			hubServer(w, r)
			return
		}
		streamOf(w, r, events)
	}
}

// watched makes watches of a worker's pods bring these events.
func watched(events <-chan any) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if isWatch(r) {
			streamOf(w, r, events)
		}
		return isWatch(r)
	}
}

// clientWatch is a watch of a client.
type clientWatch struct {
	answer answer
	events *json.Decoder
}

// seen is an event that a client gets.
type seen struct {
	Type   string
	Object struct {
		Kind              string
		metav1.ObjectMeta `json:"metadata"`
		Code              int
		Rows              []struct {
			Cells  []string
			Object *metav1.PartialObjectMetadata
		}
		ColumnDefinitions []struct{ Name string }
	}
}

// watch opens a watch. It ends with the test, or after a while.
func (w *world) watch(t *testing.T, path string, header ...string) *clientWatch {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.gateway.URL+path, nil)
	check.Must(t, err)
	r.Header.Set("Authorization", "Bearer "+good)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := w.gateway.Client().Do(r)
	check.Must(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	return &clientWatch{answer: answer{code: res.StatusCode, header: res.Header}, events: json.NewDecoder(res.Body)}
}

// next is the next event.
func (c *clientWatch) next(t *testing.T) (event seen) {
	t.Helper()
	if err := c.events.Decode(&event); err != nil {
		t.Fatalf("the watch brings no event: %v", err)
	}
	return event
}
