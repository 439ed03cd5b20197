// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package forget says what forgetting a worker means: whether it may be done, whom it concerns, and what can go wrong.
//
//	if refusal := forget.RefusalOf(worker); refusal.Final || refusal.Why != "" && !force { ... }
//	err := forget.Describe(out, forget.Consequences{Worker: worker, Dispatches: dispatches, Tombstones: tombstones})
//
// It asks nobody: whoever calls it reads the objects.
package forget
