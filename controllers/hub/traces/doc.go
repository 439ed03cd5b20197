// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package traces exports the traces of jobs as their records change: each step, attempt and job when it has ended. It
// reads the caches, and sends no request to the hub.
//
//	err := mgr.Add(&traces.Follower{Cache: mgr.GetCache(), Exporter: exporter, Clock: clock.RealClock{}})
//
// Only the leader exports. A manager that was killed may not have sent its last spans, so a new leader exports all spans
// that have ended within the last minutes (recent). The IDs of spans follow from the record, so a span that was sent twice
// is one span.
//
// What ended while no manager led has the times of the record, but the hub does not know when an eviction began that was
// over before the new leader saw it.
package traces
