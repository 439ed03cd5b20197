// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package monitoring tests the alerts of config/monitoring with Prometheus' own engine: each alert has metrics for
// which it fires, and metrics for which it does not. It is a Go module of its own because the engine has many
// dependencies.
package monitoring
