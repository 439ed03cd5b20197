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
// shapes.mu guards what is known to be the same. No I/O happens under it.
package hubcache
