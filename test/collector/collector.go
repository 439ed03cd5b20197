// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package collector is a collector of OpenTelemetry for tests: it takes traces by OTLP and keeps them.
//
//	c := collector.Start(t)
//	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.HTTP)
//	...
//	for _, span := range c.Spans() { ... }
package collector

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/trainyard/trainyard/test/check"
)

// Span is a span that was received.
type Span struct {
	// Trace, ID and Parent are in hexadecimal digits. Parent is empty for a root.
	Trace, ID, Parent string
	Name              string
	From, To          time.Time
	// Attributes are those of the span, Service is the name of the process.
	Attributes map[string]string
	Service    string
	Failed     bool
}

// Collector receives traces.
type Collector struct {
	collectorpb.UnimplementedTraceServiceServer
	// HTTP and GRPC are the endpoints.
	HTTP, GRPC string

	mu sync.Mutex
	// spans are under mu, in the order in which they were received.
	spans []Span
}

// Start starts a collector that runs until the test ends.
func Start(t testing.TB) *Collector {
	t.Helper()
	c, stop, err := New()
	check.Must(t, err)
	t.Cleanup(stop)
	return c
}

// New starts a collector that runs until stop is called.
func New() (c *Collector, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	c = &Collector{}
	web, server := httptest.NewServer(http.HandlerFunc(c.serve)), grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(listener) }()
	c.HTTP, c.GRPC = web.URL, "http://"+listener.Addr().String()
	return c, func() {
		server.Stop()
		web.Close()
	}, nil
}

func (c *Collector) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	request := &collectorpb.ExportTraceServiceRequest{}
	if err == nil {
		err = proto.Unmarshal(body, request)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprint("not a trace: ", err), http.StatusBadRequest)
		return
	}
	c.take(request)
	answer, _ := proto.Marshal(&collectorpb.ExportTraceServiceResponse{})
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(answer)
}

// Export implements collectorpb.TraceServiceServer.
func (c *Collector) Export(
	_ context.Context, request *collectorpb.ExportTraceServiceRequest,
) (*collectorpb.ExportTraceServiceResponse, error) {
	c.take(request)
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

func (c *Collector) take(request *collectorpb.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, process := range request.ResourceSpans {
		service := ""
		for _, attribute := range process.Resource.GetAttributes() {
			if attribute.Key == "service.name" {
				service = attribute.Value.GetStringValue()
			}
		}
		for _, scope := range process.ScopeSpans {
			for _, span := range scope.Spans {
				c.spans = append(c.spans, read(span, service))
			}
		}
	}
}

func read(span *tracepb.Span, service string) Span {
	s := Span{
		Trace: hex.EncodeToString(span.TraceId), ID: hex.EncodeToString(span.SpanId), Parent: hex.EncodeToString(span.ParentSpanId), Name: span.Name,
		From: time.Unix(0, int64(span.StartTimeUnixNano)), To: time.Unix(0, int64(span.EndTimeUnixNano)), Service: service,
		Attributes: map[string]string{}, Failed: span.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR,
	}
	for _, attribute := range span.Attributes {
		s.Attributes[attribute.Key] = cmp.Or(attribute.Value.GetStringValue(), fmt.Sprint(attribute.Value.GetIntValue()))
	}
	return s
}

// Spans returns the spans of a trace that were received, in the order in which they began.
func (c *Collector) Spans(trace string) []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Span
	for _, span := range c.spans {
		if span.Trace == trace {
			all = append(all, span)
		}
	}
	slices.SortStableFunc(all, func(a, b Span) int { return a.From.Compare(b.From) })
	return all
}

// Tree returns a trace as lines, each span once, indented below its parent: its name and the number of its attempt, its
// worker and its outcome. A span whose parent was not received stands at the end, after "lost".
func (c *Collector) Tree(trace string) string {
	spans := c.Spans(trace)
	children, known := map[string][]Span{}, map[string]bool{"": true}
	for _, span := range spans {
		if !known[span.ID] {
			known[span.ID] = true
			children[span.Parent] = append(children[span.Parent], span)
		}
	}
	var lines []string
	var add func(parent, indent string)
	add = func(parent, indent string) {
		below := children[parent]
		slices.SortStableFunc(below, func(a, b Span) int {
			return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Attributes["trainyard.attempt"], b.Attributes["trainyard.attempt"]), a.To.Compare(b.To))
		})
		for _, span := range below {
			words := []string{span.Name}
			for _, key := range []string{"trainyard.attempt", "trainyard.worker", "trainyard.outcome"} {
				if value := span.Attributes[key]; value != "" {
					words = append(words, value)
				}
			}
			lines = append(lines, indent+strings.Join(words, " "))
			add(span.ID, indent+"  ")
		}
	}
	add("", "")
	for parent := range children {
		if !known[parent] {
			add(parent, "lost ")
		}
	}
	return strings.Join(lines, "\n")
}
