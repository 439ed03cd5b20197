// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/collector"
	"github.com/trainyard/trainyard/views/trace"
)

// TestTraceOfCopy checks what an agent exports of a copy that has started, and nothing of a job of its own cluster.
func TestTraceOfCopy(t *testing.T) {
	setUp(t)
	c := collector.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.GRPC)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	startAgent(t)
	origin := types.UID(uuid.NewUUID())
	own := createJob(t, "own")
	awaitComplete(t, own)
	awaitComplete(t, createJob(t, "traced", func(job *trainer.TrainJob) {
		job.Labels = map[string]string{v1alpha1.LabelOriginUID: string(origin)}
		job.Annotations = map[string]string{v1alpha1.AnnotationAttempt: "3"}
	}))
	id := trace.IDOf(origin).String()
	eventually(t, "the spans", func(g gomega.Gomega) {
		names := map[string]bool{}
		for _, span := range c.Spans(id) {
			names[span.Name] = true
			g.Expect(span.Attributes["trainyard.attempt"]).To(gomega.Equal("3"))
			g.Expect(span.Attributes["trainyard.clock"]).To(gomega.Equal("worker"))
			g.Expect(span.Service).To(gomega.Equal("trainyard-worker-agent"))
			g.Expect(span.To).NotTo(gomega.BeTemporally("<", span.From))
		}
		g.Expect(names).To(gomega.And(gomega.HaveKey(trace.Building), gomega.HaveKey(trace.Scheduling)))
	})
	if spans := c.Spans(trace.IDOf(own.UID).String()); len(spans) > 0 {
		t.Errorf("a job that no hub has sent has %v", spans)
	}
}
