// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Ring-train trains a toy model on the nodes of a TrainJob, for tests on clusters with real kubelets. Each node
// computes the gradient of its part of every batch, and a ring all-reduce over TCP adds the parts.
//
// It reads what the torch policy of a training runtime sets: PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR,
// PET_MASTER_PORT and PET_NPROC_PER_NODE. PET_MASTER_ADDR names the pod of rank 0 in the headless service of the
// JobSet. The other pods have the same name with their own index. RING_PEERS lists the addresses of all ranks instead,
// for processes without a cluster.
//
// Rank 0 writes checkpoints. At the start all ranks continue from the newest checkpoint that any rank has. The same
// settings give the same weights, bit by bit, however often the training was interrupted, and on each architecture.
//
// A rank that loses its neighbour exits, as with torchrun: then all ranks exit, and are started again together.
//
// Exit codes: 0 after the last step; 143 after SIGTERM or SIGINT; 1 for everything else. Standard error says why.
// Whenever rank 0 ends with an error, it writes a checkpoint of its last step.
package main
