// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package garbagecollection deletes copies on one worker that nobody needs any more: finished ones after their retention, and
// those of attempts that the hub has left behind.
//
// It never deletes a copy for the mere absence of its Dispatch. After a restore of the hub from a backup there are copies that
// the hub does not know, and they may be training; they are counted in the metric trainyard_unknown_copies and left alone. The
// copy of a job that was deleted is deleted by mirror, which keeps the Dispatch until then.
package garbagecollection
