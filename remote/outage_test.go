// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

// TestOutage checks that a killed API server is Unreachable since the first failure. When it is back, the same clients
// and caches continue to work.
func TestOutage(t *testing.T) {
	crds, err := allCRDs(t.Context())
	check.Must(t, err)
	server := ownServer(t, "mortal", crds...)
	g, ctx := gomega.NewWithT(t), t.Context()
	fleet := newFleet(t)
	told := keepJournal(fleet)
	fleet.Ensure("a", adminCredentials(server), uidOf(t, server))
	cluster := get(t, fleet, "a")
	reach(t, cluster, remote.Connected)
	c, err := cluster.Client()
	check.Must(t, err)
	caches := cluster.Cache()
	check.Must(t, c.Create(ctx, newCopy("before", hubID)))
	key := client.ObjectKey{Namespace: "default", Name: "before"}
	g.Eventually(func() error { return c.Get(ctx, key, trainjobs.New()) }, patience).Should(gomega.Succeed())

	killed := time.Now()
	check.Must(t, server.KillAPIServer())
	status := reach(t, cluster, remote.Unreachable)
	if noticed := time.Now(); status.Since.Before(killed.Add(-time.Second)) || status.Since.After(noticed.Add(-time.Second)) {
		t.Errorf("unreachable since %s, noticed at %s, killed at %s: want the first failure", status.Since, noticed, killed)
	}
	if status.LastSeen.After(status.Since) || status.KubernetesVersion == "" || status.ClusterID == "" {
		t.Errorf("what was known before the outage is lost: %+v", status)
	}
	if err := c.Create(ctx, newCopy("during", hubID)); !remote.IsNotConnected(err) {
		t.Errorf("write to an unreachable worker: %v, want ErrNotConnected", err)
	}
	check.Equal(t, nil, c.Get(ctx, key, trainjobs.New()), "cached read during the outage")

	check.Must(t, server.StartAPIServer(ctx))
	reach(t, cluster, remote.Connected)
	if get(t, fleet, "a") != cluster || cluster.Cache() != caches {
		t.Error("the outage made another Cluster or cache")
	}
	g.Eventually(func() error { return c.Create(ctx, newCopy("after", hubID)) }, patience).Should(gomega.Succeed())
	key.Name = "after"
	g.Eventually(func() error { return c.Get(ctx, key, trainjobs.New()) }, patience).Should(gomega.Succeed())
	if states := told.of("a"); !strings.HasPrefix(states, "Connecting Connected Unreachable") || !strings.HasSuffix(states, " Connected") {
		t.Errorf("states %s", states)
	}
}

// TestShortPause checks that a worker that pauses for less than the threshold stays Connected and gets all writes.
func TestShortPause(t *testing.T) {
	crds, err := allCRDs(t.Context())
	check.Must(t, err)
	server := ownServer(t, "restarted", crds...)
	fleet := newFleet(t, func(o *remote.Options) { o.FailureThreshold = 60; o.RequestTimeout = patience })
	told := keepJournal(fleet)
	fleet.Ensure("a", adminCredentials(server), uidOf(t, server))
	cluster := get(t, fleet, "a")
	reach(t, cluster, remote.Connected)
	c, err := cluster.Client()
	check.Must(t, err)

	check.Must(t, server.KillAPIServer())
	written := make(chan error, 1)
	go func() { written <- c.Create(t.Context(), newCopy("during", hubID)) }()
	check.Must(t, server.StartAPIServer(t.Context()))
	if err := <-written; err != nil && !isBroken(err) {
		t.Errorf("write during the pause: %v", err)
	}
	gomega.NewWithT(t).Eventually(func() error {
		return client.IgnoreAlreadyExists(c.Create(t.Context(), newCopy("during", hubID)))
	}, patience).Should(gomega.Succeed())
	if states := told.of("a"); states != "Connecting Connected" && states != "Connected" {
		t.Errorf("states %s, want no disconnect", states)
	}
}

// isBroken says whether the error is of a killed server. The error depends on how far the request was.
func isBroken(err error) bool {
	return slices.ContainsFunc([]string{"connection re", "EOF", "broken pipe"}, func(words string) bool { return strings.Contains(err.Error(), words) })
}

// TestMissingAPIs checks that a message names each missing CRD, and that installing the CRD is enough. A worker
// without JobSets is connected: the hub must be able to take jobs back.
func TestMissingAPIs(t *testing.T) {
	server := ownServer(t, "bare")
	fleet := newFleet(t)
	fleet.Ensure("a", adminCredentials(server), uidOf(t, server))
	cluster := get(t, fleet, "a")
	status := reach(t, cluster, remote.TrainJobAPIMissing)
	if !strings.Contains(status.Message, "Kubeflow Trainer") || status.KubernetesVersion == "" {
		t.Errorf("status %+v", status)
	}
	crds, err := clusters.ModulePaths(t.Context(), clusters.TrainerCRDs, clusters.JobSetCRDs)
	check.Must(t, err)
	check.Must(t, server.InstallCRDs(t.Context(), crds[0]))
	reach(t, cluster, remote.Connected)
	expectJobSets := func(served bool) {
		t.Helper()
		gomega.NewWithT(t).Eventually(func(g gomega.Gomega) {
			status := cluster.Status()
			g.Expect(status.State).To(gomega.Equal(remote.Connected), status.Message)
			g.Expect(strings.Contains(status.JobSetMissing, "install JobSet")).To(gomega.Equal(!served), status.JobSetMissing)
		}, patience).Should(gomega.Succeed())
	}
	expectJobSets(false)
	check.Must(t, server.InstallCRDs(t.Context(), crds[1]))
	expectJobSets(true)
	_, err = server.Kubectl(t.Context(), "delete", "crd", "jobsets.jobset.x-k8s.io")
	check.Must(t, err)
	expectJobSets(false) // No other API server, and no probe, tells of it.
	check.Must(t, server.InstallCRDs(t.Context(), crds[1]))
	expectJobSets(true)

	_, err = server.Kubectl(t.Context(), "delete", "crd", "trainjobs.trainer.kubeflow.org")
	check.Must(t, err)
	reach(t, cluster, remote.TrainJobAPIMissing)
}

// logbook keeps the log lines that contain a text.
type logbook struct {
	words string

	mu    sync.Mutex
	lines []string
}

func (l *logbook) write(prefix, args string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.Contains(prefix+args, l.words) {
		l.lines = append(l.lines, prefix+args)
	}
}

func (l *logbook) read() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...)
}

// newJobSet returns a JobSet with fields that are cached and fields that are not. Only owned JobSets count.
func newJobSet(name string, owners ...any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
		"metadata": map[string]any{
			"namespace": "default", "name": name, "labels": map[string]any{"a": "b"}, "annotations": map[string]any{"c": "d"},
			"ownerReferences": owners,
		},
		"spec": map[string]any{"suspend": false, "replicatedJobs": []any{map[string]any{
			"name": "node", "replicas": int64(1), "template": map[string]any{"spec": map[string]any{"template": map[string]any{
				"spec": map[string]any{"containers": []any{map[string]any{"name": "a", "image": "a"}}},
			}}},
		}}},
	}}
}

// TestJobSetsAreOptional checks that a kubeconfig without the right to read JobSets still makes a Connected worker. The
// log says once that the right is missing. When the right is granted, the JobSets arrive over the same connection.
func TestJobSetsAreOptional(t *testing.T) {
	server := shared.Get(t)
	g, ctx := gomega.NewWithT(t), t.Context()
	admin, err := client.New(server.Config, client.Options{})
	check.Must(t, err)
	owned := newJobSet("owned", map[string]any{
		"apiVersion": trainjobs.GroupVersionKind.GroupVersion().String(), "kind": "TrainJob", "name": "owned", "uid": "u", "controller": true,
	})
	foreign := newJobSet("foreign")
	for _, jobSet := range []*unstructured.Unstructured{owned, foreign} {
		check.Must(t, admin.Create(ctx, jobSet))
		jobSet.Object["status"] = map[string]any{
			"restarts": int64(2), "restartsCountTowardsMax": int64(1),
			"replicatedJobsStatus": []any{map[string]any{
				"name": "node", "active": int64(1), "ready": int64(0), "succeeded": int64(0), "failed": int64(0), "suspended": int64(0),
				"jobRestarts": []any{int64(0), int64(3)},
			}},
			"conditions": []any{
				map[string]any{"type": "Suspended", "status": "False", "reason": "A", "message": "b", "lastTransitionTime": "2026-01-02T03:04:05Z"},
				map[string]any{"type": "StartupPolicyCompleted", "status": "True", "reason": "A", "message": "b", "lastTransitionTime": "2026-01-02T03:04:05Z"},
			},
		}
		check.Must(t, admin.Status().Update(ctx, jobSet))
	}

	log := &logbook{words: "jobset"}
	fleet := newFleet(t, func(o *remote.Options) { o.Logger = funcr.New(log.write, funcr.Options{Verbosity: 1}) })
	fleet.Ensure("optional", account(t, server, "optional", neededRules()...), uidOf(t, server))
	cluster := get(t, fleet, "optional")
	status := reach(t, cluster, remote.Connected)
	c, err := cluster.Client()
	check.Must(t, err)
	read := func(name string) (*unstructured.Unstructured, error) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		jobSet := newJobSet(name)
		jobSet.Object = map[string]any{"apiVersion": jobSet.GetAPIVersion(), "kind": jobSet.GetKind()}
		return jobSet, c.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, jobSet)
	}
	if _, err := read("owned"); err == nil || errors.Is(err, context.DeadlineExceeded) || client.IgnoreNotFound(err) == nil {
		t.Errorf("get JobSet: %v, want at once that they are not listed", err)
	}
	g.Eventually(func() float64 { return series(t, "trainyard_worker_requests_total", "optional")["403 list"] }, patience).Should(
		gomega.BeNumerically(">=", 2))
	check.Equal(t, 1, len(log.read()), "log lines about JobSets")
	if now := cluster.Status(); now.State != remote.Connected || now.Since != status.Since || now.Message != status.Message {
		t.Errorf("status %+v, want that of before, %+v", now, status)
	}

	grant(t, server, "optional-jobsets", "optional", hubRules()...)
	var cached *unstructured.Unstructured
	g.Eventually(func() (err error) {
		cached, err = read("owned")
		return err
	}, patience).Should(gomega.Succeed())
	want := map[string]any{
		"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
		"metadata": map[string]any{
			"namespace": "default", "name": "owned", "uid": string(owned.GetUID()), "resourceVersion": owned.GetResourceVersion(),
			"creationTimestamp": owned.GetCreationTimestamp().UTC().Format(time.RFC3339), "ownerReferences": []any{map[string]any{
				"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "owned", "uid": "u", "controller": true,
			}},
		},
		"spec": map[string]any{"suspend": false},
		"status": map[string]any{
			"restarts":             int64(2),
			"replicatedJobsStatus": []any{map[string]any{"name": "node", "jobRestarts": []any{int64(0), int64(3)}}},
			"conditions":           []any{map[string]any{"type": "Suspended", "status": "False", "lastTransitionTime": "2026-01-02T03:04:05Z"}},
		},
	}
	check.Diff(t, want, cached.Object, "what is kept of the JobSet of a TrainJob")
	cached, err = read("foreign")
	check.Must(t, err)
	want = map[string]any{
		"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": map[string]any{
			"namespace": "default", "name": "foreign", "uid": string(foreign.GetUID()), "resourceVersion": foreign.GetResourceVersion(),
			"creationTimestamp": foreign.GetCreationTimestamp().UTC().Format(time.RFC3339),
		},
	}
	check.Diff(t, want, cached.Object, "what is kept of another JobSet")

	for _, jobSet := range []*unstructured.Unstructured{owned, foreign} {
		check.Must(t, admin.Delete(ctx, jobSet, &client.DeleteOptions{GracePeriodSeconds: new(int64)}))
	}
	g.Eventually(func() error {
		_, err := read("owned")
		return err
	}, patience).Should(gomega.Satisfy(func(err error) bool { return err != nil && client.IgnoreNotFound(err) == nil }))
}
