// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifests reads files of Kubernetes objects strictly: what an API server would not take, or not do anything with, is a
// fault that names the file, the document in it and the field.
//
//	objects, err := manifests.Read(scheme, kinds, os.Stdin, "job.yaml", "-")
//	client := objects.Over(hub)
//
// Objects can be read like a cluster, alone or in front of one: what is in the files hides what the cluster has of the same name.
package manifests
