// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"context"
	"errors"
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
)

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
	if lines := log.read(); len(lines) != 1 {
		t.Errorf("log lines about JobSets, want one: %q", lines)
	}
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
