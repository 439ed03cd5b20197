// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package measure takes the measures of a run: what happened to each job and when, by the benchmark's own watches and
// one clock; what the API servers were asked, by their metrics; and what a process has used, by /proc and its pprof
// endpoint.
package measure
