// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plot draws what package report says as SVG: lines with axes, a legend, and bars for the spread.
package plot
