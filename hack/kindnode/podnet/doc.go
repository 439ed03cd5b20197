// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command podnet is the pod network of the clusters whose node image hack/kind-node-image.sh builds. It runs on each
// node, in the network of the node. It watches the cluster's nodes and does two things:
//
//   - It writes the CNI configuration of its own node, with the node's pod CIDR. The plugins ptp, host-local and
//     portmap do the rest. ptp masquerades what leaves the node's pod CIDR.
//   - It keeps a route to the pod CIDR of each other node by the node's address. All nodes are in one network, so no
//     tunnel is needed.
//
// $NODE_NAME is the name of the node. podnet supports IPv4 only, and no network policies.
package main
