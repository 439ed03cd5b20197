// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process has what the manager and the worker-agent share as processes: the connection to the API server,
// leader election, logs, probes and metrics, the flags for these, and the wait for CRDs that the cluster lacks.
package process
