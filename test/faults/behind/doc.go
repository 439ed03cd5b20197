// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package behind tests what the design promises of a worker that has a Kueue, when networks and processes fail: the
// worker west has a real Kueue, whose queue takes the copies, and the worker south has none. As in package faults, a
// recorder says after each test what has really happened.
//
// It takes the binary of hack/build-kueue.sh. The tests run one after another, as there is one Kueue.
package behind
