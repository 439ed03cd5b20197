// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package multikueue imports the clusters of a hub's MultiKueue into Trainyard.
//
//	seen, err := multikueue.Read(ctx, hub, multikueue.Options{KueueNamespace: "kueue-system", Namespace: multikueue.DefaultNamespace})
//	plan, err := seen.Decide(time.Now())
//	report := multikueue.Import(ctx, hub, seen, plan, multikueue.NoDryRun, waits)
//
// Read reads, Decide is pure, and Import writes with Apply, one object after the other. Apply owns only the fields that
// the import sets, and fails with a conflict if somebody else has changed one of them since. Decide leaves out objects
// that somebody else has made. The annotation AnnotationFrom says which objects the import has made.
//
// Import asks each worker with lackOf which rights of config/worker the imported credentials lack. Plan.CutOver has the
// commands of the cut-over of one ClusterQueue.
//
// Kueue's objects are read in version v1beta2, which Kueue serves from v0.15 on. The package needs no types of Kueue.
package multikueue
