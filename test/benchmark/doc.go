// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package benchmark measures the manager as a whole: a process of its own, with a real API server as the hub and many
// fake workers (package fakeservers). It reports numbers, and nothing in it fails because something took long.
//
//	make bench-hanging
package benchmark
