// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hub reads from the hub what the plugin shows, with the rights of its user, and says in words what keeps it from that.
//
//	h, err := hub.New(config, "the-context")
//	workers, err := h.Workers(ctx)
//
// It asks for no discovery: the kinds that it reads are known. Lists come in pages, so that a large hub is not asked for all at
// once.
package hub
