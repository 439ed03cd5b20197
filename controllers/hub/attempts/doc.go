// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package attempts writes what controllers of several kinds have to say about an attempt in the same way: above all its end, on which
// placement relies when it gives the job to another worker.
//
// An Ender knows nothing of workers. Who calls End has made sure before that the attempt has no copy that can run and will have none,
// or that this is allowed not to be so; and has called TakeBackStatus, if a copy has spoken, because after End the next copy may. Both
// are one write with an optimistic lock: a conflict means that what the caller has decided on is out of date.
package attempts
