// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package yard lets package dispatch and its queue decide in a simulated world. It runs the manager's code, with the
// simulator in place of the manager. System is a world.System, and the Fleet of a queue.Queue.
package yard
