// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package attempts has the former names of what is in dispatch/record and internal/records, until mirror and placement
// use the new names.
package attempts

import (
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
)

// Limit is record.LastAttempt.
const Limit = record.LastAttempt

// Ender is records.Writer.
type Ender = records.Writer

// The former names.
var (
	OfAnotherHub     = v1alpha1.OfAnotherHub
	After            = record.NextAttempt
	BoundExplanation = record.BoundExplanation
	BoundEntries     = record.BoundEntries
	SetCopied        = record.SetCopied
	SetCondition     = record.SetCondition
	AddHistory       = record.AddHistory
	ClearProgress    = record.ClearProgress
	Message          = record.Message
	Shorten          = record.Shorten
	IsFinal          = records.IsFinal
	SpecOf           = records.TombstoneOf
	Keep             = records.Keep
	Tombstones       = records.Tombstones
)
