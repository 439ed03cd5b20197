// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package copies

import "github.com/trainyard/trainyard/dispatch/record"

// Presence is what a worker has of an attempt.
type Presence int

const (
	// Nothing says: there is no TrainJob of the name. After a look at the API server also: nothing is left of the copy,
	// and nothing can come.
	Nothing Presence = iota
	// Arriving says: there is no TrainJob of the name, or a foreign one. A creation that got no answer may still make
	// ours, or the worker's controllers may still make something of ours.
	Arriving
	// Left says: the copy is gone or being deleted, and its JobSet or a Job is there, or one of its pods may run.
	Left
	// Current says: the copy of the attempt.
	Current
	// Second says: another copy of the attempt. A creation without an answer arrived when the first copy had been deleted.
	Second
	// Older says: the copy of another attempt of the job, almost always an earlier one.
	Older
	// Foreign says: a TrainJob that is not ours.
	Foreign
)

// String names the presence, for logs and tests.
func (p Presence) String() string {
	return [...]string{"nothing", "arriving", "left", "current", "second", "older", "foreign"}[p]
}

// PresenceOf is the presence of a TrainJob that is there, by what it is to the Dispatch.
func PresenceOf(relation record.Relation) Presence {
	switch relation {
	case record.Current:
		return Current
	case record.Second:
		return Second
	case record.Older, record.Later, record.Unmarked:
		return Older
	case record.Foreign:
	}
	return Foreign
}
