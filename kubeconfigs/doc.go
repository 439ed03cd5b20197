// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeconfigs loads a worker's credentials from the Secret or file that a WorkerCluster's connection names.
//
// A kubeconfig can run programs (exec), read files (tokenFile, certificate paths), send its token to anybody (a proxy,
// an unverified server) and refer to several clusters. Parse refuses that, and everything that cannot work. Its error
// has a line for each fault: the path of the field, what is wrong, and what would be right. The texts depend only on
// the kubeconfig, so the same problem gives the same condition message. They contain no secrets.
//
// Parse builds the rest.Config from the few fields that it knows. Other fields have no effect.
//
// Use:
//
//	loader := &kubeconfigs.Loader{Reader: manager.GetClient(), Namespace: "trainyard-system", Clock: clock.RealClock{}}
//	credentials, err := loader.Load(ctx, workerCluster.Spec.Connection)
//	if reason := kubeconfigs.ReasonOf(err); reason != "" {
//		// The condition: reason and err.Error().
//	}
//
// Rotation: the caller watches Secrets. FileWatcher reports changed files. Call Add before Load, so that no change is
// lost between them. Credentials have changed if and only if Fingerprint has changed.
//
// Locks: FileWatcher.mu guards FileWatcher.locked. Code under it does no I/O and calls no callbacks.
package kubeconfigs
