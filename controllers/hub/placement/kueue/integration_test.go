// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kueue

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/stage"
)

// patience is a timeout for quick things on a machine that may be busy.
const patience = 60 * time.Second

// environment is a hub without Kueue. Tests install Kueue's CRDs, and delete them when they end.
type environment struct {
	hub     client.Client
	cluster *clusters.Cluster
}

var shared = stage.Share(func(context.Context, *stage.Stage) error { return nil })

func TestMain(m *testing.M) { shared.Main(m) }

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	hub := shared.Get(t).Hub
	return &environment{hub: hub.Admin, cluster: hub.Cluster}
}

func (e *environment) install(t *testing.T) {
	t.Helper()
	must(t, e.cluster.ApplyFiles(t.Context(), filepath.Join("testdata", "crds.yaml")))
	t.Cleanup(func() { e.uninstall(t) })
}

// uninstall deletes Kueue's CRDs, and waits until they are gone.
func (e *environment) uninstall(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	gone := func() bool {
		left := false
		for _, plural := range []string{"workloads", "admissionchecks", "resourceflavors"} {
			definition := &unstructured.Unstructured{}
			definition.SetAPIVersion("apiextensions.k8s.io/v1")
			definition.SetKind("CustomResourceDefinition")
			definition.SetName(plural + "." + kueues.Group)
			left = e.hub.Delete(ctx, definition) == nil || left
		}
		return !left
	}
	gomega.NewWithT(t).Eventually(gone, patience, 50*time.Millisecond).Should(gomega.BeTrue(), "the CRDs are gone")
}

// create creates an object with its status. It tries again while the API is being installed.
func (e *environment) create(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	full := object.DeepCopy()
	create := func() error { return e.hub.Create(t.Context(), object) }
	gomega.NewWithT(t).Eventually(create, patience, 50*time.Millisecond).Should(gomega.Succeed())
	full.SetResourceVersion(object.GetResourceVersion())
	full.SetUID(object.GetUID())
	must(t, e.hub.Status().Update(t.Context(), full))
}

func (e *environment) createCheck(t *testing.T, name, controller string) *unstructured.Unstructured {
	t.Helper()
	check := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"controllerName": controller},
	}}
	e.create(t, check)
	return check
}

// createWorkload creates a Workload of the TrainJob "llm" in the namespace default.
func (e *environment) createWorkload(t *testing.T, status map[string]any) *unstructured.Unstructured {
	t.Helper()
	w := testWorkload("w", status)
	w.SetNamespace(metav1.NamespaceDefault)
	e.create(t, w)
	return w
}

// setStatus writes the status of a Workload.
func (e *environment) setStatus(t *testing.T, w *unstructured.Unstructured, status map[string]any) {
	t.Helper()
	must(t, e.hub.Get(t.Context(), client.ObjectKeyFromObject(w), w))
	w.Object["status"] = status
	must(t, e.hub.Status().Update(t.Context(), w))
}

// told has the keys with which a Watch has called its subscriber.
type told struct {
	mu   sync.Mutex
	keys map[types.NamespacedName]int // under mu
}

func (k *told) add(key types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys[key]++
}

func (k *told) count(key types.NamespacedName) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.keys[key]
}

// start starts a Watch with a configuration until the test ends.
func start(t *testing.T, config *rest.Config) (*Watch, *told) {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(config)
	must(t, err)
	w := New(Options{Config: config, HTTPClient: httpClient, Logger: logr.Discard()})
	keys := &told{keys: map[types.NamespacedName]int{}}
	w.Subscribe(keys.add)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
	})
	return w, keys
}

// becomes waits until a job has a standing.
func becomes(t *testing.T, w *Watch, job *unstructured.Unstructured, want Standing) Answer {
	t.Helper()
	gomega.NewWithT(t).Eventually(func() string { return w.Of(job).Standing.String() }, patience, 5*time.Millisecond).
		Should(gomega.Equal(want.String()))
	return w.Of(job)
}

var llm = types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "llm"}

func jobs() (marked, plain *unstructured.Unstructured) {
	marked, plain = testJob(queued), trainjobs.New()
	marked.SetNamespace(metav1.NamespaceDefault)
	plain.SetUID("plain")
	return marked, plain
}

// The Watch learns from events that Kueue is installed, changed and removed.
func TestKueueComesAndGoes(t *testing.T) {
	e := newEnvironment(t)
	w, keys := start(t, e.cluster.Config)
	marked, plain := jobs()
	everybody := types.NamespacedName{}
	becomes(t, w, marked, Free)
	if !w.Known() {
		t.Error("it is not known that there is no Kueue")
	}
	before := keys.count(everybody)

	e.install(t)
	becomes(t, w, marked, Held)
	if got := w.Of(plain).Standing; got != Free {
		t.Errorf("a job that is not Kueue's is %s", got)
	}
	if keys.count(everybody) <= before {
		t.Error("nobody was told that there is a Kueue now")
	}
	e.createCheck(t, "mk", v1alpha1.ManagedByMultiKueue)
	object := e.createWorkload(t, status(nil, "mk"))
	becomes(t, w, marked, MultiKueue)
	if keys.count(llm) == 0 {
		t.Error("nobody was told of the job's Workload")
	}
	e.setStatus(t, object, status([]string{"Admitted"}))
	becomes(t, w, marked, Free)

	e.uninstall(t)
	becomes(t, w, marked, Free)
	gomega.NewWithT(t).Eventually(func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.phase == absent
	}, patience, 5*time.Millisecond).Should(gomega.BeTrue())

	e.install(t)
	becomes(t, w, marked, Held)
}

// Changes of a Workload and of an AdmissionCheck wake the job.
func TestWorkloadChanges(t *testing.T) {
	e := newEnvironment(t)
	e.install(t)
	w, keys := start(t, e.cluster.Config)
	marked, _ := jobs()
	wakes := func(what string, want Standing, act func()) {
		t.Helper()
		before := keys.count(llm)
		act()
		becomes(t, w, marked, want)
		gomega.NewWithT(t).Eventually(func() int { return keys.count(llm) }, patience, 5*time.Millisecond).
			Should(gomega.BeNumerically(">", before), what+" wakes the job")
	}
	becomes(t, w, marked, Held)
	var object, check *unstructured.Unstructured
	wakes("a Workload with an unknown check", Held, func() {
		object = e.createWorkload(t, status([]string{"Admitted"}, "mk"))
	})
	wakes("the AdmissionCheck", MultiKueue, func() { check = e.createCheck(t, "mk", v1alpha1.ManagedByMultiKueue) })
	wakes("the end of the AdmissionCheck", Held, func() { must(t, e.hub.Delete(t.Context(), check)) })
	wakes("a Workload without checks", Free, func() { e.setStatus(t, object, status([]string{"Admitted"})) })
	wakes("an eviction", Held, func() { e.setStatus(t, object, status([]string{"Admitted", "Evicted"})) })
	wakes("an admission", Free, func() { e.setStatus(t, object, status([]string{"Admitted"})) })
	before := keys.count(llm)
	e.setStatus(t, object, status([]string{"Admitted", "PodsReady"}))
	wakes("the end of the Workload", Held, func() { must(t, e.hub.Delete(t.Context(), object)) })
	if got := keys.count(llm); got != before+1 {
		t.Errorf("the job was woken %d times by a change that says nothing and by the end, want once", got-before)
	}
}

// A manager without the rights to read holds the jobs that Kueue may manage, and says why. With the rights it goes on.
func TestRights(t *testing.T) {
	e := newEnvironment(t)
	e.install(t)
	config := rest.CopyConfig(e.cluster.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "manager-to-be"}
	w, _ := start(t, config)
	marked, plain := jobs()
	answer := becomes(t, w, marked, Held)
	if want := `cannot list resource "customresourcedefinitions"`; !strings.Contains(answer.Message, want) {
		t.Errorf("the message is %q, want it to have %q", answer.Message, want)
	}
	if got := w.Of(plain).Standing; got != Free || !w.Known() {
		t.Errorf("a job that is not Kueue's is %s, and known: %t", got, w.Known())
	}
	objects, err := clusters.ReadObjects("../../../../config/rbac/cluster_role.yaml")
	must(t, err)
	must(t, e.cluster.ApplyObjects(t.Context(), objects...))
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "manager-to-be"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "manager-to-be"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: objects[0].GetName()},
	}
	must(t, e.hub.Create(t.Context(), binding))
	t.Cleanup(func() { must(t, e.hub.Delete(context.WithoutCancel(t.Context()), binding)) })
	e.createWorkload(t, status([]string{"Admitted"}))
	becomes(t, w, marked, Free)
}

// requests counts a client's requests, by path.
type requests struct {
	next http.RoundTripper
	mu   sync.Mutex
	made map[string]int // under mu
}

func (r *requests) RoundTrip(request *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.made[request.URL.Path]++
	r.mu.Unlock()
	return r.next.RoundTrip(request)
}

// A hub without Kueue costs one list and one watch. No error is repeated.
func TestHubWithoutKueue(t *testing.T) {
	e := newEnvironment(t)
	config := rest.CopyConfig(e.cluster.Config)
	counted := &requests{made: map[string]int{}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		counted.next = next
		return counted
	})
	w, _ := start(t, config)
	marked, _ := jobs()
	becomes(t, w, marked, Free)
	// A change of another CRD on the hub is no event of this watch.
	gomega.NewWithT(t).Consistently(func() int {
		counted.mu.Lock()
		defer counted.mu.Unlock()
		sum := 0
		for _, count := range counted.made {
			sum += count
		}
		return sum
	}, 3*time.Second, 100*time.Millisecond).Should(gomega.BeNumerically("<=", 2), "requests: a list and a watch")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
