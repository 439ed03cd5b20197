// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ports keeps addresses for processes that tests and benchmarks start, and asks these whether they are ready.
package ports
