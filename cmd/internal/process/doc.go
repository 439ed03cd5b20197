// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process is what the manager and the worker-agent have in common as processes of a cluster: how they reach its API
// server, elect a leader, log, and answer probes and scrapes, with the flags for it.
package process
