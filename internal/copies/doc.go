// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package copies looks at the copies on one worker, and deletes them. It does not judge what a copy is to a Dispatch:
// that is record.RelationOf.
//
// A copy is gone when the worker's API server says so (Find), and when nothing is left that could run (HasRemains).
// Caches prove no absence: a watch lags, and a copy that has lost the label of this hub is not in the cache. Whoever
// ends an attempt, or forgets a copy, needs both answers. A job that runs and ends needs neither. For a moment after
// both answers the worker's controllers may still make something of the copy: mirror asks again until that is over.
package copies
