// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package logarchive keeps the ends of the logs of jobs beyond the pods that have printed them: in a directory (Dir) or
// in a bucket (package bucket). The manager writes it when an attempt ends, and the gateway reads it.
//
// # Keys
//
// An attempt has the key NAMESPACE/JOB/UID/ATTEMPT, where UID is that of the hub TrainJob. Below it are POD/CONTAINER.log
// and POD/CONTAINER.previous.log, and index.json. So nothing of one attempt, or of one job of a name, replaces anything
// of another. Workers choose the names of pods and containers: a name that is no name of Kubernetes is refused.
//
// # Order
//
// The logs are written first, and the index last. An attempt without an index was interrupted, and is kept again. The
// index says of each container what is kept and, if nothing is, why not.
//
// # Whose logs
//
// The rights of who reads are about a namespace. The index has the UID of the hub's namespace, and Find finds nothing
// of another namespace that had the same name before. The package deletes nothing: how long logs stay is up to the
// lifecycle of the bucket, or to who cleans the directory.
package logarchive
