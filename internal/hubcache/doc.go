// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hubcache is how the manager's caches hold the TrainJobs and Dispatches of the hub, of which most have
// finished.
//
// A finished object that is not being deleted is kept packed (packed.go): what of it is the same for many jobs is in
// memory once. Nobody sees that: what is read from the cache, and what handlers get, is unpacked.
// Nobody writes a finished Dispatch or TrainJob but to delete it, so of a packed object only the fields are left that
// somebody reads. Package expiry reads the API server before it archives a job.
//
// # What is read late
//
// A start does not wait until finished jobs are read. The Hub's informers begin with the Dispatches that have not
// finished, which the API server selects by status.phase, and with their TrainJobs. Then they read the rest, page by
// page: first the Dispatches, then the TrainJobs. A page has the objects as they were at the version from which the watch
// goes on. The watch is of all objects, so what happens to a finished job meanwhile is seen (source.go, watch.go). What
// comes late comes to handlers as new objects, not as a part of the initial list.
//
// Until all are read, absent from the cache does not mean absent. The Hub's client asks the API server for an object that
// the cache does not have. Where many such questions would come at once, the caller reads Patiently, and comes again.
// Lists are not completed: do not take an object for gone because a list lacks it.
//
// An API server before Kubernetes 1.31, or with the CRD of an earlier version, answers that it does not know the field.
// Then all Dispatches are read first, and TrainJobs as above.
//
// shapes.mu guards what is known to be the same. source.mu guards what of the rest the informer has got. No I/O happens
// under them.
package hubcache
