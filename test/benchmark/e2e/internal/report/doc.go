// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report says what a benchmark has measured: as a table for people, as JSON for programs, as SVG, and beside
// the project's targets. Targets are ratios of what one run has measured, so that they mean the same on any machine.
package report
