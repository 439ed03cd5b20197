// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Clusters starts Kubernetes clusters of local processes and keeps them until
// it is interrupted, its parent ends or, with --end-with-stdin, its standard
// input does.
//
//	clusters up hub worker-1 worker-2 --jobset --nodes worker-1=8xnvidia.com/gpu=8 --nodes worker-2=2xnvidia.com/gpu=4
//
// See package clusters for what they are and "make controlplane" for the
// binaries that they need.
package main
