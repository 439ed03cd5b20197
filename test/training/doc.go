// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Toy-train trains a toy model on the nodes of a TrainJob, for tests on clusters with real kubelets. Each rank computes
// the gradient of its part of every batch. Rank 0 adds the parts and sends the sum to all ranks.
//
// It reads what the torch policy of a training runtime sets: PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR and
// PET_MASTER_PORT. The master is rank 0.
//
// Rank 0 writes checkpoints, and at the start it sends the newest one to the others. The same flags give the same
// weights, bit by bit, however often the training was interrupted, and on each architecture.
//
// In a TrainJob of a DispatchPolicy with checkpoints, rank 0 also adds each step that it has done to the file "steps" of
// the checkpoints' folder, one a line: the attempt of the TrainJob, and the step.
//
// A rank that loses another one exits, as with torchrun: then all ranks exit, and are started again together.
//
// Exit codes: 0 after the last step; 143 after SIGTERM or SIGINT; 1 for everything else. Standard error says why.
// Whenever rank 0 ends with an error, it writes a checkpoint of its last step.
package main
