// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package traces tests with whole processes that manager and agents export one trace of a job.
package traces

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/collector"
	"github.com/trainyard/trainyard/test/yard"
	"github.com/trainyard/trainyard/views/trace"
)

const east, west = "east", "west"

var (
	y = yard.Suite{
		Options: yard.Options{Workers: []yard.Worker{worker(east), worker(west)}, Progress: yard.Print},
		Timeout: 2 * time.Minute,
		Poll:    100 * time.Millisecond,
	}
	received *collector.Collector
)

func worker(name string) yard.Worker {
	return yard.Worker{Name: name, Nodes: []clusters.NodeShape{yard.GPUNodes(name, 2, 8, "NVIDIA-H100")}}
}

func TestMain(m *testing.M) { yard.Main(m, start) }

func start(ctx context.Context) (stop func() error, err error) {
	var end func()
	if received, end, err = collector.New(); err != nil {
		return nil, err
	}
	// The processes of the yard have the environment of the test.
	err = errors.Join(os.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.GRPC), os.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"))
	if err != nil {
		return nil, err
	}
	stopYard, err := y.Start(ctx)
	return func() error {
		defer end()
		if stopYard == nil {
			return nil
		}
		return stopYard()
	}, err
}

// TestTraceOfMovedJob moves a job to another worker, and kills the manager meanwhile. Manager and both agents have
// exported one tree.
func TestTraceOfMovedJob(t *testing.T) {
	job := yard.Job{Name: "moved", Nodes: 2, GPUs: 8, RunFor: clusters.RunForever}.TrainJob()
	check.Must(t, y.Hub.Create(t.Context(), job))
	t.Cleanup(func() { check.Must(t, client.IgnoreNotFound(y.Hub.Delete(context.Background(), job.DeepCopy()))) })
	id := trace.IDOf(job.UID).String()
	at := runs(t, job, "")
	tree(t, id, "", "scheduling 1") // Its attempt goes on, so the parent is not there yet.

	check.Must(t, y.Yard.Managers.Kill())
	y.Edit(t, at, func(w *v1alpha1.WorkerCluster) { w.Spec.Drain = true })
	then := runs(t, job, at)
	tree(t, id, "", "attempt 1 "+at+" Drained", "evicting 1 "+at)
	pods := y.PodsOf(gomega.NewWithT(t), then, job)
	for i := range pods {
		ended := client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`))
		check.Must(t, y.Workers[then].Status().Patch(t.Context(), &pods[i], ended))
	}
	text := tree(t, id, "trainjob Complete",
		"  attempt 1 "+at+" Drained", "    scheduling 1", "    evicting 1 "+at, "  attempt 2 "+then+" Complete", "    scheduling 2")
	if strings.Contains(text, "lost") || strings.Count(text, "\n  attempt") != 2 {
		t.Errorf("the tree is not whole:\n%s", text)
	}
	for _, span := range received.Spans(id) {
		agent := span.Attributes["trainyard.clock"] == "worker"
		if want := map[bool]string{false: "trainyard-manager", true: "trainyard-worker-agent"}[agent]; span.Service != want {
			t.Errorf("%s comes from %s, want %s", span.Name, span.Service, want)
		}
	}
}

// runs waits until the pods of a job run on another worker, and returns that worker.
func runs(t *testing.T, job client.Object, than string) (at string) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		d := y.DispatchOf(g, job)
		at = string(d.Spec.Cluster)
		g.Expect(at).NotTo(gomega.BeElementOf("", than))
		g.Expect(d.Status.Attempt).To(gomega.Equal(d.Spec.Attempt))
		g.Expect(d.Status.FirstRunningTime).NotTo(gomega.BeNil())
		for _, pod := range y.PodsOf(g, at, job) {
			g.Expect(pod.Status.Phase).To(gomega.Equal(corev1.PodRunning))
		}
	})
	return at
}

// tree waits until a trace begins so and has these lines, and returns it.
func tree(t *testing.T, id, first string, lines ...string) (text string) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		text = received.Tree(id)
		g.Expect(text).To(gomega.HavePrefix(first))
		for _, line := range lines {
			g.Expect(text).To(gomega.ContainSubstring(line))
		}
	})
	return text
}
