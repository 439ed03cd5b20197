// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package copies finds the copies on workers that are not on record on the hub, as after a restore of the hub from a
// backup. It also says what has become of a copy after an admin's decision.
//
//	copy, err := copies.Find(worker, key)
//	done := copies.IsSettled(worker, copy)
//
// It reads the status of WorkerClusters. It does no I/O.
package copies
