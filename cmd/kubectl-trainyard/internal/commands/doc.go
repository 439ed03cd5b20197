// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package commands has the commands of the kubectl plugin, one file for each (adopt and release: copies.go; uncordon:
// cordon.go; import: importing.go). As in kubectl, a command has a type with its options, which gets its clients from
// the Factory and prints to streams. It leaves the work to another package.
//
// A command returns its error, and Main prints the error once. It uses cmd.Context(), which ends with Ctrl-C, and only
// the given streams.
package commands
