// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hub reads from the hub what the plugin shows, and writes the few things that it changes, with the rights of its user. It says
// in words what keeps it from that.
//
//	h, err := hub.New(config, "the-context")
//	workers, err := h.Workers(ctx)
//
// It asks for no discovery: the kinds that it reads are known. Lists come in pages, so that a large hub is not asked for all at
// once. What is written are merge patches of single fields of WorkerClusters.
//
// A Watcher is for commands that follow what happens:
//
//	ctx, watcher := h.NewWatcher(ctx)
//	worker, err := watcher.Worker(ctx, "gpu-east")
//	for {
//		look(worker())
//		select {
//		case <-watcher.Changed():
//		case <-ctx.Done():
//			return context.Cause(ctx)
//		}
//	}
package hub
