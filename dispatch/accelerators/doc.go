// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package accelerators knows by name the extended resources that stand for accelerators: GPUs, TPUs and the like. A name
// says in which unit the resource is counted, and a label of the node says what product it is. Everything that counts
// accelerators asks a Table, so no other code looks into the names of resources:
//
//	table, err := accelerators.Parse([]string{"example.com/npu=Device"})   // What an admin adds. The zero Table adds nothing.
//	if accelerators.UnitIn(table, name, node.Allocatable) == accelerators.Device { gpus += amount }
//
// A whole device counts as one. A share of a device, such as a MIG slice, is counted in shares, and never together with
// whole devices: nobody knows from a name how many shares a device has. Memory and percent of a device say how large a
// share is. They are part of a job's demand as any resource is, but nothing adds them up.
//
// What to watch out for: the name is all that a request has. A device plugin that offers each GPU several times under
// the name nvidia.com/gpu makes its shares look like devices. An admin who runs such a plugin everywhere says so with
// the row nvidia.com/gpu=Share.
package accelerators
