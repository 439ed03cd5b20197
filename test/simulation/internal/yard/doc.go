// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package yard has package dispatch and its queue decide in an imagined world: the code that the manager runs, with the simulator in
// the place of the manager. System is a world.System, and the Fleet of a queue.Queue.
package yard
