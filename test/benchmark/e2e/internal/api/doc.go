// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api speaks to API servers as directly as the benchmark can: JSON over one HTTP/2 connection, without rate limit, cache or types
// that would be decoded in vain. What the benchmark itself asks for is counted, so that it can be told from what it measures.
package api
