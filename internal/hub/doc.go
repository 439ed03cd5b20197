// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hub reads and writes the hub for the plugin, with its user's rights. Its errors say what the user can do.
//
//	h, err := hub.New(config, "the-context")
//	workers, err := h.Workers(ctx)
//
// It writes only merge patches of single fields of WorkerClusters. Package multikueue writes what is imported from
// MultiKueue.
//
// A Watcher is for commands that follow changes:
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
