// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/views/trace"
)

// Exporter exports spans. A nil Exporter exports nothing.
type Exporter struct {
	provider *sdk.TracerProvider
	tracer   api.Tracer
}

// FromEnvironment returns the exporter that the environment asks for, nil if it asks for none. service is the name of the
// process in the traces, unless the environment has one. Errors of the collector go to log.
func FromEnvironment(ctx context.Context, service string, log logr.Logger) (*Exporter, error) {
	if is, err := wanted(os.Getenv); !is || err != nil {
		return nil, err
	}
	sampler, err := newSampler(os.Getenv)
	if err != nil {
		return nil, err
	}
	client, err := newClient(ctx, os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("set up the export of traces: %w", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", service)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("set up the export of traces: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Error(err, "Export traces") }))
	var queue []sdk.BatchSpanProcessorOption
	if os.Getenv(queueVariable) == "" {
		queue = append(queue, sdk.WithMaxQueueSize(queueSize))
	}
	provider := sdk.NewTracerProvider(
		sdk.WithBatcher(client, queue...), sdk.WithSampler(sampler), sdk.WithIDGenerator(generator{}), sdk.WithResource(about))
	return &Exporter{provider: provider, tracer: provider.Tracer("github.com/trainyard/trainyard")}, nil
}

// Export puts spans of a trace into the queue. They have ended.
func (e *Exporter) Export(ctx context.Context, tree *trace.Tree, spans []trace.Span) {
	if e == nil {
		return
	}
	for i := range spans {
		e.export(ctx, tree, &spans[i])
	}
}

func (e *Exporter) export(ctx context.Context, tree *trace.Tree, span *trace.Span) {
	ctx = context.WithValue(ctx, idsKey{}, ids{trace: api.TraceID(tree.ID), span: api.SpanID(span.ID)})
	if span.Parent != (trace.SpanID{}) {
		ctx = api.ContextWithSpanContext(ctx, api.NewSpanContext(api.SpanContextConfig{
			TraceID: api.TraceID(tree.ID), SpanID: api.SpanID(span.Parent), TraceFlags: api.FlagsSampled,
		}))
	}
	_, made := e.tracer.Start(ctx, span.Name, api.WithTimestamp(span.From), api.WithAttributes(attributesOf(tree, span)...))
	if failed(span.Outcome) {
		made.SetStatus(codes.Error, span.Message)
	}
	made.End(api.WithTimestamp(span.To))
}

// attributesOf are the attributes of a span. k8s.namespace.name is one of OpenTelemetry's conventions.
func attributesOf(tree *trace.Tree, span *trace.Span) []attribute.KeyValue {
	all := []attribute.KeyValue{attribute.String("k8s.namespace.name", tree.Job.Namespace), attribute.String("trainyard.trainjob", tree.Job.Name)}
	if span.Attempt > 0 {
		all = append(all, attribute.Int("trainyard.attempt", int(span.Attempt)))
	}
	if span.Worker != "" {
		all = append(all, attribute.String("trainyard.worker", string(span.Worker)))
	}
	if span.Outcome != "" {
		all = append(all, attribute.String("trainyard.outcome", string(span.Outcome)))
	}
	if span.Pods { // Times of two clusters are not to be compared.
		all = append(all, attribute.String("trainyard.clock", "worker"))
	}
	return all
}

// failed is true for outcomes that somebody should look at. A job that was moved to make room has not failed.
func failed(outcome v1alpha1.Outcome) bool {
	switch outcome {
	case "", v1alpha1.OutcomeComplete, v1alpha1.OutcomePreempted, v1alpha1.OutcomeDrained, v1alpha1.OutcomeSuspended, v1alpha1.OutcomeJobChanged,
		v1alpha1.OutcomeManagedByMultiKueue:
		return false
	default:
		return true
	}
}

// patience is how long the last spans may take to be sent when the process ends.
const patience = 5 * time.Second

// Start waits until ctx ends, and sends then what is in the queue. It implements manager.Runnable.
func (e *Exporter) Start(ctx context.Context) error {
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := e.provider.Shutdown(ctx); err != nil {
		otel.Handle(fmt.Errorf("send the last spans: %w", err)) // The process ends, with or without them.
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: what has a leader to export ends before.
func (e *Exporter) NeedLeaderElection() bool { return false }

// ids are the IDs of the span that is being made.
type ids struct {
	trace api.TraceID
	span  api.SpanID
}

// idsKey is the key of ids in a context.
type idsKey struct{}

// generator takes the IDs from the context.
type generator struct{}

// NewIDs implements sdk.IDGenerator, for roots.
func (generator) NewIDs(ctx context.Context) (api.TraceID, api.SpanID) {
	given, _ := ctx.Value(idsKey{}).(ids)
	return given.trace, given.span
}

// NewSpanID implements sdk.IDGenerator, for spans with a parent.
func (generator) NewSpanID(ctx context.Context, _ api.TraceID) api.SpanID {
	given, _ := ctx.Value(idsKey{}).(ids)
	return given.span
}
