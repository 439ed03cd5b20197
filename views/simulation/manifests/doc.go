// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifests reads the files of a simulation as kubectl reads files.
//
//	files, err := manifests.Read(os.Stdin, "job.yaml", "-")
//
// It is apart from package simulation because it reads paths and URLs, which no server may do for its users.
package manifests
