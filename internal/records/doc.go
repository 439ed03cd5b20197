// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package records reads and writes Dispatches and Tombstones on the hub. Package dispatch/record defines the content of
// a Dispatch and how to edit it. This package brings it to the API server: field owner, optimistic lock, indexes, and
// the condition that reports a write that the API server refuses for good (writer.go). It also makes Tombstones
// (tombstones.go), and says what an attempt has cost (usage.go).
//
// Every write of a Dispatch has an optimistic lock. A conflict means that the caller has decided on old data, and must
// decide again (package requeue).
//
// A Writer knows nothing of workers. Before End, the caller makes sure that the attempt has no copy that can run and
// will have none, or that such a copy may be ignored. If a copy has reported a status, the caller calls TakeBackStatus
// before End, because after End the next copy may report its status.
package records
