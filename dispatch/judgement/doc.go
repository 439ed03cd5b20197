// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package judgement says what is to be done about a copy. It is pure.
//
// The manager looks at a key on one worker: the hub's job, its Dispatch and its Tombstones, and the TrainJob of that
// name on the worker. Of judges what has been seen, once and for all who act on it. Its answer has two parts. Attempt
// is about the attempt on record: package mirror does what it says. Copy is about the TrainJob that has the name:
// package garbagecollection does what that says. Most often the TrainJob is the copy of the attempt on record. Then
// Copy is Needed until the job has finished, and only Attempt counts.
package judgement
