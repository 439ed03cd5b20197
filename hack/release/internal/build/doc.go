// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package build compiles the programs of the repository for images and releases.
//
// The same commit and the same version of Go give the same bytes, in whatever folder and on whatever machine: binaries
// are static, without paths and without VCS information, and the environment of the caller does not count.
package build
