// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package behind tests what the design promises for a worker that has a Kueue, when networks and processes fail. The
// worker west has a real Kueue, whose queue takes the copies. The worker south has none. As in package faults, a
// recorder says after each test what has really happened.
//
// It needs the binary of hack/build-kueue.sh. The tests run one after another, because there is only one Kueue.
package behind
