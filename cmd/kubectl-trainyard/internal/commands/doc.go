// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package commands are the commands of the kubectl plugin, one file for each. A command parses flags and arguments, takes its
// clients from the Factory, and leaves the work to a package of its own.
//
// A command returns its error, and Main prints it, once. It takes cmd.Context(), which ends with Ctrl-C, and writes to the
// Factory's streams only.
package commands
