// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package records reads and writes Dispatches and Tombstones on the hub. What a Dispatch says, and how it is edited, is
// in package dispatch/record; how it gets to the API server is here: the field owner, the optimistic lock, the indexes,
// and what is said when the API server refuses a write for good.
//
// Every write of a Dispatch has an optimistic lock. A conflict means that what the caller has decided on is out of
// date: the caller decides again (package requeue).
//
// A Writer knows nothing of workers. Who calls End has made sure that the attempt has no copy that can run and will
// have none, or may ignore such a copy. Who calls End after a copy has spoken has called TakeBackStatus before, because
// after End the next copy may speak.
package records
