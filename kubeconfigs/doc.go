// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeconfigs turns what a WorkerCluster's connection names, a Secret or a file, into credentials for one worker.
//
// A kubeconfig can run programs (exec), read files (tokenFile, certificate paths), send its token to anybody (a proxy, an
// unverified server) and mean several clusters. Parse refuses all of that, and everything that could not work anyway, with
// every fault in one error of one line per fault: the path of the field, what is wrong, and what would be right. The texts
// depend on the kubeconfig only, so that the same problem gives the same condition message, and never contain anything secret.
//
// The rest.Config is built by hand from the few fields that Parse knows. A field that it does not know has no effect.
//
// Use:
//
//	loader := &kubeconfigs.Loader{Reader: manager.GetClient(), Namespace: "trainyard-system", Clock: clock.RealClock{}}
//	credentials, err := loader.Load(ctx, workerCluster.Spec.Connection)
//	if reason := kubeconfigs.ReasonOf(err); reason != "" {
//		// The condition: reason and err.Error().
//	}
//
// Rotation: the caller watches Secrets. For files there is FileWatcher, which reports changed content. Call Add before Load,
// so that no change falls between them. Compare Fingerprint to know whether the credentials are other ones.
//
// Locks: FileWatcher.mu guards FileWatcher.locked. Nothing is read from disk and nothing is called back under it.
package kubeconfigs
