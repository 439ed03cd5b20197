// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster reads and writes the objects of a cluster with the rights of the plugin's user.
//
//	c, err := cluster.New(config)
//	err = cluster.Each(ctx, c, &v1alpha1.DispatchList{}, func(d *v1alpha1.Dispatch) { ... })
//	result, err := cluster.Apply(ctx, c, object, live, owner)
//
// A client needs no discovery, because the package knows the kinds that the plugin reads and writes (cluster.go). Each
// reads lists in pages, to spare a large hub. Apply and Merge say what they have done in kubectl's words. Missing asks
// for rights. The caller adds to an error what it was doing, and on which cluster.
package cluster
