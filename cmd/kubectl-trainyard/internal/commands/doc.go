// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package commands has the commands of the kubectl plugin, one file for each. A command parses flags and arguments,
// takes its clients from the Factory, and leaves the work to another package.
//
// A command returns its error, and Main prints the error once. It uses cmd.Context(), which ends with Ctrl-C, and only
// the Factory's streams.
package commands
