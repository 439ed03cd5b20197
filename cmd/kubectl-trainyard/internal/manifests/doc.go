// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifests reads files of Kubernetes objects strictly. If an API server would refuse or ignore something, it
// is a fault that names the file, the document in it and the field.
//
//	objects, err := manifests.Read(scheme, kinds, os.Stdin, "job.yaml", "-")
//	client := objects.Over(hub)
//
// A client can read the objects alone, or over a cluster: then they hide its objects of the same name.
package manifests
