// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process has what the manager and the worker-agent share as processes: the connection to the API server,
// leader election, logs, probes and metrics, and the flags for these.
package process
