// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package capacityreport writes the CapacityReport of the cluster that it runs on: what the nodes have and the pods
// use. Hubs that do not read nodes and pods themselves read the report (WorkerCluster.spec.capacity: Report).
//
//	err := capacityreport.Add(mgr, capacityreport.Options{Clock: clock.RealClock{}})
//
// The reporter has no queue, because there is only one object. It writes the report by server-side apply when its
// content changes, at most once in Options.Interval. Without a change, it writes once in capacity.RenewInterval. The
// hub watches whether renewTime changes. So it knows that a reporter runs, and compares no clocks.
//
// The reporter counts with capacity.Tally, like a hub that reads nodes and pods. It has its own caches: the caches of
// the TrainJob controller have only the pods of JobSets. It starts when this replica leads and the CRD is installed.
//
// With Options.Quota it also counts the quota of the cluster's Kueue, as soon as Kueue is installed and the agent may
// read its objects. Until then the report has no quota, and the log says why.
//
// The reporter abridges a report larger than capacity.ReportLimit, and the report says how. It retries a failed write
// with a growing pause of at most capacity.RenewInterval, and logs a failure once. It has one goroutine and no lock;
// another goroutine waits for Kueue.
package capacityreport
