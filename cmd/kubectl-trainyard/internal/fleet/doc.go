// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet knows of the workers what the status of their WorkerClusters says: it shows them (Table), and makes of them what
// package dispatch decides on (Workers).
//
// The status is written by the hub's manager, which decides on the same numbers before they are rounded into groups: nodes that
// differ only in labels of a single node are one group, and a worker with more kinds of nodes than the status has room for is shown
// with the least that alike ones have. So what is decided here can err on the side of waiting.
package fleet
