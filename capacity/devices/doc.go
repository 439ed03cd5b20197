// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devices counts the devices that Dynamic Resource Allocation can hand out on the nodes of one worker.
//
// A Counter gets ResourceSlices, DeviceClasses, ResourceClaims and DeviceTaintRules, and has the numbers of each node
// (Node). Kubernetes' own allocator says which devices of a node a class can have: the Counter asks it for one device
// after the other, until there is no other one. So selectors, taints, generations, incomplete pools, partitions and
// shares count as they do in the scheduler.
//
// A Counter that gets ResourceClaimTemplates also counts, by NameOfClaim, how many of their claims fit on each node. It
// leaves out claims that fit wherever there are enough devices. Templates of equal requests and constraints are one kind.
//
// # What to watch out for
//
//   - A class that cannot be counted on a node has no devices there, and Faults says why.
//   - Devices count on a node if no other node of the worker reaches them. Counter.Faults names the pools of the others.
//   - A kind of claims that cannot be counted on a node, or takes too long, fits there any number of times, and Faults
//     says why.
//   - A device of two classes counts for both. So a job that wants devices of both classes may seem to fit, if they are
//     not of one claim. Claims of two kinds may seem to fit where only one does.
//   - Devices are taken while a claim has them in its status, whatever its pods do.
//   - A DeviceTaintRule whose selector is not known here taints no device, and Faults names it.
//   - A Counter is not for several goroutines. The Nodes that it returns never change.
package devices
