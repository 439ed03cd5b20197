// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package board tests the board in a browser: headless Chromium on a real API server, with the plugin as its users run it.
//
// It needs a browser, so CI does not run it: make test-board. Debian's package is chromium. The test prints the folder with
// a screenshot of each page, at two widths and in two themes.
package board
