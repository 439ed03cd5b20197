// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package forget says what it means to forget a worker: whether it is allowed, the affected jobs, and the risks.
//
//	if refusal := forget.RefusalOf(worker); refusal.Final || refusal.Why != "" && !force { ... }
//	err := forget.Describe(out, forget.Consequences{Worker: worker, Dispatches: dispatches, Tombstones: tombstones})
//
// It does no I/O: the caller reads the objects.
package forget
