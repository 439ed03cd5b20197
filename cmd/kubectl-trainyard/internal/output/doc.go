// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package output prints tables for people and objects for programs, with the flags of kubectl get.
//
//	flags := output.NewFlags()
//	flags.AddTo(cmd)
//	...
//	err := flags.Print(out, table, objects)
package output
