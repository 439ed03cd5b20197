// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ports finds free addresses for processes that tests and benchmarks start, and asks these whether they are ready.
//
// An address is free when it is found, and not kept: a process that is to listen there should start soon, and one that finds it taken be
// started anew with another.
package ports
