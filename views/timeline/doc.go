// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package timeline says what a TrainJob has done when, from the hub's records: how long it waited, and when each of its
// attempts started, ran and ended. It does no I/O.
//
//	spans := timeline.Of(job, dispatch)
//
// The hub records when an attempt ran and ended by its own clock, and when a copy started by the worker's. A start by the
// worker's clock is moved between the times before and after it, so that a timeline never goes back.
package timeline
