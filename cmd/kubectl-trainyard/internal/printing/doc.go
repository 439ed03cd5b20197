// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package printing prints tables for people and objects for programs, with the flags of kubectl get.
//
//	flags := printing.NewFlags()
//	flags.AddTo(cmd)
//	...
//	err := flags.PrintTable(out, table)
package printing
