// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/collector"
	"github.com/trainyard/trainyard/views/trace"
)

// TestTraceOfJob checks the trace that a manager exports of a job that no worker takes, and that another manager, which
// comes after it was killed, exports the same.
func TestTraceOfJob(t *testing.T) {
	w := hub(t)
	c := collector.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.HTTP)
	policy := &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: "in-vain"}, Spec: v1alpha1.DispatchPolicySpec{
		GiveUpAfter: &metav1.Duration{Duration: 3 * time.Second},
	}}
	check.Must(t, w.admin.Create(t.Context(), policy))
	t.Cleanup(func() { check.Must(t, w.admin.Delete(context.Background(), policy)) })
	first := w.start(t, "--webhook-bind-address=0")
	job := newJob("default", "traced")
	check.Must(t, w.admin.Create(t.Context(), job))
	t.Cleanup(func() { check.Must(t, client.IgnoreNotFound(w.admin.Delete(context.Background(), job))) })
	id := trace.IDOf(job.UID).String()
	const want = "trainjob Failed\n  attempt 1 Failed\n    waiting 1"
	eventually(t, "the trace", func(g gomega.Gomega) { g.Expect(c.Tree(id)).To(gomega.Equal(want)) })
	spans := len(c.Spans(id))

	check.Must(t, first.Kill())
	check.Must(t, w.admin.Delete(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: leaseName}}))
	w.start(t, "--webhook-bind-address=0")
	eventually(t, "the spans of another manager", func(g gomega.Gomega) { g.Expect(len(c.Spans(id))).To(gomega.BeNumerically(">=", spans+3)) })
	check.Equal(t, want, c.Tree(id), "the trace")
	seen := map[string]collector.Span{}
	for _, span := range c.Spans(id) {
		if other, is := seen[span.ID]; is && (!other.From.Equal(span.From) || !other.To.Equal(span.To) || other.Name != span.Name) {
			t.Errorf("one span is %v and %v", other, span)
		}
		seen[span.ID] = span
	}
	check.Equal(t, 3, len(seen), "different spans")
}

// TestBadTraceEnvironment checks that a manager does not start with a variable that cannot be, and names it.
func TestBadTraceEnvironment(t *testing.T) {
	w := hub(t)
	t.Setenv("OTEL_TRACES_EXPORTER", "zipkin")
	manager := exec.CommandContext(t.Context(), w.binary, "--kubeconfig="+w.kubeconfig, "--namespace="+defaultNamespace,
		"--metrics-bind-address=0", "--health-probe-bind-address=0", "--webhook-bind-address=0", "--leader-elect=false")
	output, err := manager.CombinedOutput()
	if want := `OTEL_TRACES_EXPORTER is "zipkin": must be otlp or none`; err == nil || !bytes.Contains(output, []byte(want)) {
		t.Errorf("the manager ends with error %v, want %q in:\n%s", err, want, output)
	}
}
