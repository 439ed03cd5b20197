// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api speaks to API servers as directly as the benchmark can: JSON over one HTTP/2 connection, without rate
// limit and cache, and without types that nobody reads. It counts the benchmark's own requests, so that they can be
// told from what it measures.
package api
