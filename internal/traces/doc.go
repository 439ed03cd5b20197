// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package traces sends the traces of TrainJobs to an OpenTelemetry collector by OTLP.
//
//	exporter, err := traces.FromEnvironment(ctx, "trainyard-manager", log)
//	err = mgr.Add(exporter)
//	...
//	exporter.Export(ctx, tree, tree.Closed(before))
//
// The standard environment variables of OpenTelemetry say whether and where to (options.go). Package views/trace makes
// the spans after the fact. They bring their IDs, so a span that is exported twice, such as by two managers, is one span.
//
// Export puts spans into a bounded queue, and a goroutine sends them. When the queue is full, spans are dropped: no job
// waits for a collector.
package traces
