// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scenario has the scenarios in which the systems are measured. Each scenario has a World of its own: fresh
// clusters with one system, the stub on the workers and the watches that measure.
package scenario
