// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package traces_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/internal/traces"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/collector"
	"github.com/trainyard/trainyard/views/trace"
)

const uid = types.UID("0af76519-16cd-43dd-8448-eb211c80319c")

var from = time.Date(2026, 5, 4, 3, 0, 0, 0, time.UTC)

// newTree returns a trace of two spans.
func newTree() *trace.Tree {
	root := trace.Span{ID: trace.SpanIDOf(uid, 0, trace.Root), Name: trace.Root, From: from, To: from.Add(time.Minute), Outcome: "Failed", Message: "no"}
	attempt := trace.Span{
		ID: trace.SpanIDOf(uid, 1, trace.Attempt), Parent: root.ID, Name: trace.Attempt, Attempt: 1, Worker: "east", From: from, To: from.Add(time.Second),
		Outcome: "Drained",
	}
	return &trace.Tree{ID: trace.IDOf(uid), UID: uid, Job: types.NamespacedName{Namespace: "default", Name: "llm"}, Spans: []trace.Span{root, attempt}}
}

// unset is an environment that asks for nothing.
func unset(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL",
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG", "OTEL_SERVICE_NAME",
	} {
		t.Setenv(name, "")
	}
}

// flush ends the exporter.
func flush(t *testing.T, exporter *traces.Exporter) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check.Must(t, exporter.Start(ctx))
}

// TestExport sends a trace by both protocols, and looks at what arrives.
func TestExport(t *testing.T) {
	for _, protocol := range []string{"", "http/protobuf", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			unset(t)
			c := collector.Start(t)
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.HTTP)
			if protocol == "grpc" {
				t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.GRPC)
			}
			exporter, err := traces.FromEnvironment(t.Context(), "trainyard-manager", logr.Discard())
			check.Must(t, err)
			tree := newTree()
			exporter.Export(t.Context(), tree, tree.Spans[1:])
			exporter.Export(t.Context(), tree, tree.Spans[:1])
			flush(t, exporter)
			const id = "0af7651916cd43dd8448eb211c80319c"
			check.Equal(t, "trainjob Failed\n  attempt 1 east Drained", c.Tree(id), "tree")
			for i, span := range c.Spans(id) {
				check.Equal(t, "trainyard-manager", span.Service, "service")
				check.Equal(t, span.Name == trace.Root, span.Failed, "a job has failed, and an attempt was drained")
				check.Equal(t, "default/llm", span.Attributes["k8s.namespace.name"]+"/"+span.Attributes["trainyard.trainjob"], "job of span %d", i)
				if !span.From.Equal(from) || !span.To.After(from) {
					t.Errorf("span %d is from %s to %s", i, span.From, span.To)
				}
			}
		})
	}
}

// TestEnvironment checks when traces are exported, and what is said about values that cannot be.
func TestEnvironment(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"
	for name, tc := range map[string]struct {
		set  string
		want bool
		err  string
	}{
		"Nothing":     {},
		"Endpoint":    {set: endpoint, want: true},
		"OfTraces":    {set: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:1/v1/traces", want: true},
		"Exporter":    {set: "OTEL_TRACES_EXPORTER=otlp", want: true},
		"None":        {set: endpoint + " OTEL_TRACES_EXPORTER=none"},
		"Disabled":    {set: endpoint + " OTEL_SDK_DISABLED=true"},
		"Other":       {set: "OTEL_TRACES_EXPORTER=zipkin", err: `OTEL_TRACES_EXPORTER is "zipkin": must be otlp or none`},
		"BadProtocol": {set: endpoint + " OTEL_EXPORTER_OTLP_PROTOCOL=http/json", err: `is "http/json": must be grpc or http/protobuf`},
		"BadSampler":  {set: endpoint + " OTEL_TRACES_SAMPLER=jaeger_remote", err: `OTEL_TRACES_SAMPLER is "jaeger_remote": must be always_on`},
		"BadRatio":    {set: endpoint + " OTEL_TRACES_SAMPLER=traceidratio OTEL_TRACES_SAMPLER_ARG=10%", err: `OTEL_TRACES_SAMPLER_ARG is "10%": must be a number from 0 to 1`},
		"Ratio":       {set: endpoint + " OTEL_TRACES_SAMPLER=parentbased_traceidratio OTEL_TRACES_SAMPLER_ARG=0.1", want: true},
	} {
		t.Run(name, func(t *testing.T) {
			unset(t)
			for pair := range strings.FieldsSeq(tc.set) {
				key, value, _ := strings.Cut(pair, "=")
				t.Setenv(key, value)
			}
			exporter, err := traces.FromEnvironment(t.Context(), "test", logr.Discard())
			if tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) || tc.err == "" && err != nil {
				t.Errorf("got error %v, want %q", err, tc.err)
			}
			check.Equal(t, tc.want, exporter != nil, "whether traces are exported")
			exporter.Export(t.Context(), newTree(), nil) // Nobody asks whether there is one.
		})
	}
}
