// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package oci makes container images of static binaries, without a base image and without a container engine.
//
// An image has two layers: the certificate authorities that Mozilla trusts, and the program. A program's images for
// several platforms are one index, in an OCI layout on disk. From there they go to a registry (Push) or into a Docker
// engine (Load).
package oci
