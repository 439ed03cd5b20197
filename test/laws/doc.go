// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package laws says which writes of a Dispatch are right. Check says of a write that a test has seen whether it is one
// of record.Transitions, and whether it keeps the laws that hold for every write.
//
// Only tests use it: the tests of the controllers, the explorer and the tests of faults.
package laws
