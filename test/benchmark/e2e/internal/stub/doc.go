// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stub is the worker side of every system: a copy that may run is Complete after some time, by one write of its
// status. There are no JobSets and no pods. On workers with agents, which make JobSets, it completes the JobSets.
package stub
