// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package output makes the tables that the plugin prints and the board shows.
//
//	table := output.NewTable(output.Column{Name: "Name"}, output.Column{Name: "Price", Wide: true})
//	output.Add(table, worker.Name, output.Or(price, output.None))
package output
