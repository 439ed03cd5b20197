// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package monitoring tests the alerts and dashboards of config/monitoring with Prometheus' own engine: each alert has
// metrics for which it fires, and metrics for which it does not; each panel shows something for metrics with the labels
// of docs/metrics.md. It is a Go module of its own because the engine has many
// dependencies.
package monitoring
