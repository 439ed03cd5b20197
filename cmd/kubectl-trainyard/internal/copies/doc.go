// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package copies is about copies of TrainJobs on workers that the hub has no record of, as after a restore of the hub from a backup:
// which there are, and what has become of one about which an admin has decided.
//
//	copy, err := copies.Find(worker, key)
//	done := copies.IsSettled(worker, copy)
//
// What it knows of them is in the status of the WorkerClusters. It does no I/O.
package copies
