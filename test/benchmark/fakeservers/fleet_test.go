// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeservers_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/kubeconfigs"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/benchmark/fakeservers"
	"github.com/trainyard/trainyard/test/check"
)

const tick = 10 * time.Millisecond

func startFleet(t *testing.T, options fakeservers.Options) *fakeservers.Fleet {
	t.Helper()
	fleet, err := fakeservers.Start(options)
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, fleet.Close()) })
	return fleet
}

var eventually = check.Within(waitLimit, tick)

// connect makes a remote.Fleet connect to a worker as the manager does.
func connect(t *testing.T, worker *fakeservers.Worker) *remote.Cluster {
	t.Helper()
	kubeconfig, err := worker.Kubeconfig()
	check.Must(t, err)
	credentials, err := kubeconfigs.Parse(kubeconfig, time.Now())
	check.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	fleet, err := remote.NewFleet(ctx, remote.Options{
		HubID: "hub", ProbeInterval: 100 * time.Millisecond, ProbeTimeout: time.Second, RequestTimeout: time.Second,
	})
	check.Must(t, err)
	t.Cleanup(func() { cancel(); fleet.Wait() })
	fleet.Ensure("worker", remote.Credentials{Config: credentials.Config, Fingerprint: credentials.Fingerprint}, worker.ID)
	cluster, _ := fleet.Get("worker")
	awaitState(t, cluster, remote.Connected)
	return cluster
}

func awaitState(t *testing.T, cluster *remote.Cluster, want remote.State) {
	t.Helper()
	eventually(t, want.String(), func(g gomega.Gomega) {
		g.Expect(cluster.Status().State).To(gomega.Equal(want), cluster.Status().Message)
	})
}

func newJob(name string, suspended bool) *unstructured.Unstructured {
	job := trainjobs.New()
	job.SetNamespace(metav1.NamespaceDefault)
	job.SetName(name)
	job.SetLabels(map[string]string{v1alpha1.LabelHub: "hub"})
	job.Object["spec"] = map[string]any{"managedBy": v1alpha1.ManagedByBuiltIn, "suspend": suspended, "runtimeRef": map[string]any{"name": "torch"}}
	return job
}

// The manager's own client works with a fake worker: it sees what the worker has, and writes, reads and deletes there.
func TestTheManagersClient(t *testing.T) {
	fleet := startFleet(t, fakeservers.Options{Workers: 1, Nodes: 3, GPUs: 8, RunFor: 50 * time.Millisecond})
	cluster := connect(t, fleet.Workers[0])
	if status := cluster.Status(); status.KubernetesVersion != "v1.36.3" || !slices.Contains(status.Trainer.Fields, "runtimePatches") {
		t.Errorf("status %+v", status)
	}
	eventually(t, "nodes", func(g gomega.Gomega) {
		g.Expect(cluster.Inventory().Snapshot().Nodes).To(gomega.HaveLen(3))
		g.Expect(cluster.Inventory().Snapshot().Nodes[0].Allocatable).To(gomega.HaveKeyWithValue(corev1.ResourceName("nvidia.com/gpu"), int64(8)))
	})
	c, err := cluster.Client()
	check.Must(t, err)
	// As protobuf, as the manager creates namespaces.
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}}
	if err := c.Create(t.Context(), namespace); err != nil || namespace.UID == "" {
		t.Errorf("create Namespace: %v, UID %q", err, namespace.UID)
	}
	job, held := newJob("job", false), newJob("held", true)
	for _, j := range []*unstructured.Unstructured{job, held} {
		check.Must(t, c.Create(t.Context(), j, client.FieldValidation(metav1.FieldValidationStrict)))
	}
	eventually(t, "the job to end", func(g gomega.Gomega) {
		g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(job), job)).To(gomega.Succeed())
		g.Expect(trainjobs.Terminal(job)).NotTo(gomega.BeNil())
	})
	check.Equal(t, nil, trainjobs.Terminal(held), "a suspended job has ended")
	uid := job.GetUID()
	check.Must(t, c.Delete(t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationForeground), client.Preconditions{UID: &uid}))
	eventually(t, "the job to go", func(g gomega.Gomega) {
		g.Expect(apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(job), job))).To(gomega.BeTrue())
	})
}

// A worker that hangs does not answer. After that it goes on where it was.
func TestHang(t *testing.T) {
	fleet := startFleet(t, fakeservers.Options{Workers: 1})
	worker := fleet.Workers[0]
	cluster := connect(t, worker)
	worker.Hang()
	awaitState(t, cluster, remote.Unreachable)
	if connection, err := net.DialTimeout("tcp", strings.TrimPrefix(worker.Config.Host, "https://"), waitLimit); err != nil {
		t.Errorf("connections are not accepted: %v", err)
	} else {
		_ = connection.Close()
	}
	if since := cluster.Status().SilentSince; !since.IsZero() {
		t.Errorf("it counts as silent since %s, and accepts connections", since)
	}
	worker.Resume()
	awaitState(t, cluster, remote.Connected)
}

// Discovery is understood by client-go, aggregated or not.
func TestDiscovery(t *testing.T) {
	fleet := startFleet(t, fakeservers.Options{Workers: 1})
	for _, legacy := range []bool{false, true} {
		disco, err := discovery.NewDiscoveryClientForConfig(fleet.Workers[0].Config)
		check.Must(t, err)
		disco.UseLegacyDiscovery = legacy
		_, lists, err := disco.ServerGroupsAndResources()
		check.Equal(t, nil, err, "legacy %t", legacy)
		var found []string
		for _, list := range lists {
			for _, resource := range list.APIResources {
				found = append(found, list.GroupVersion+"/"+resource.Name)
			}
		}
		for _, want := range []string{"v1/pods", "v1/namespaces/status", "trainer.kubeflow.org/v1alpha1/trainjobs", "jobset.x-k8s.io/v1alpha2/jobsets"} {
			if !slices.Contains(found, want) {
				t.Errorf("legacy %t: no %s in %q", legacy, want, found)
			}
		}
	}
}

func TestAccess(t *testing.T) {
	fleet := startFleet(t, fakeservers.Options{Workers: 2})
	if fleet.Workers[0].ID == fleet.Workers[1].ID {
		t.Error("two workers have one ID")
	}
	config := rest.CopyConfig(fleet.Workers[0].Config)
	config.BearerToken = fleet.Workers[1].Config.BearerToken
	if code, _ := newServer(t, config).do(t, step{path: "/version"}); code != http.StatusUnauthorized {
		t.Errorf("with another worker's token: code %d", code)
	}
}

// A worker is light, with the watches of a manager and jobs.
func TestMemory(t *testing.T) {
	const count, jobs = 50, 50
	before := inUse()
	fleet := startFleet(t, fakeservers.Options{Workers: count, Nodes: 10, GPUs: 8})
	for _, worker := range fleet.Workers {
		s := newServer(t, worker.Config)
		for i := range jobs {
			body := strings.ReplaceAll(trainJob("job-%d", ""), "job-%d", "job-"+string(rune('a'+i%26))+strings.Repeat("x", i/26))
			if code, _ := s.do(t, step{method: "POST", path: strings.ReplaceAll(jobsPath, "conform", "default"), body: body}); code != http.StatusCreated {
				t.Fatalf("create: code %d", code)
			}
		}
		for _, path := range []string{
			"/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces", runtimes, "/apis/trainer.kubeflow.org/v1alpha1/trainjobs", "/apis/jobset.x-k8s.io/v1alpha2/jobsets",
		} {
			response := s.open(t, step{path: path + "?watch=true"})
			t.Cleanup(func() { _ = response.Body.Close() })
			go func() { _, _ = io.Copy(io.Discard, response.Body) }()
		}
	}
	each := (inUse() - before) / count
	t.Logf("%d KiB for each worker, with the client's side", each>>10)
	if each > 1<<20 {
		t.Errorf("a worker takes %d KiB, want less than 1024", each>>10)
	}
}

// inUse is what the process uses of memory, as far as Go knows.
func inUse() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapInuse + stats.StackInuse
}

// After Close nobody answers.
func TestClose(t *testing.T) {
	fleet, err := fakeservers.Start(fakeservers.Options{Workers: 1})
	check.Must(t, err)
	fleet.Workers[0].Hang()
	check.Must(t, fleet.Close())
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	_, err = (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(fleet.Workers[0].Config.Host, "https://"))
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("dial after Close: %v", err)
	}
}
