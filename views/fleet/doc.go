// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet reads workers from the status of their WorkerClusters. Table shows them, and Workers converts them for
// decisions of package dispatch.
//
// The hub's manager writes the status. It decides on the same numbers before they are rounded into groups. Nodes that
// differ only in labels of a single node are one group. If a worker has too many kinds of nodes for the status, similar
// nodes are shown with the least that any of them has. So a decision here may wait where the manager places.
package fleet
