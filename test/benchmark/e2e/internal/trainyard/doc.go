// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package trainyard runs Trainyard's managers, as processes with their defaults, for the benchmark. Finished copies are
// deleted at once, so that their deletion is measured with the rest.
package trainyard
