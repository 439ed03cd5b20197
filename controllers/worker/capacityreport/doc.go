// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package capacityreport keeps the CapacityReport of the cluster that it runs on: what its nodes have and its pods use, for hubs that
// do not read nodes and pods themselves (WorkerCluster.spec.capacity: Report).
//
//	err := capacityreport.Add(mgr, capacityreport.Options{Clock: clock.RealClock{}})
//
// It is no controller with a queue: there is one object, and it is written by server-side apply whenever what it says has changed, at
// most once in Options.Interval, and once in capacity.RenewInterval if nothing has. The renewal is how a hub knows that somebody is
// there: it looks whether renewTime changes, and compares no clocks.
//
// It counts with capacity.Tally, as a hub does that reads the nodes and pods, in caches of its own: those of the TrainJob controller
// have the pods of JobSets only. They begin when this replica leads, and only where the CRD is installed.
//
// A report that would be larger than capacity.ReportLimit is abridged, and says how. What cannot be written is tried again, with a
// growing pause of at most capacity.RenewInterval, and said once in the log.
//
// Under a lock: nothing. The Reporter has one goroutine.
package capacityreport
