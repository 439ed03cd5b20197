// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package yard starts a whole Trainyard on this machine for the end-to-end tests and the demo: a hub and workers with
// real API servers (package clusters), the manager, and a worker-agent on every cluster.
//
// Every process runs as its service account with the RBAC of config/, and the scripts that admins use register the
// workers. No process runs as the admin, so that the tests find a missing right.
//
// The tests of a package share a Suite:
//
//	var y = yard.Suite{Options: yard.Options{Workers: workers}, Timeout: 2 * time.Minute, Poll: 50 * time.Millisecond}
//
//	func TestMain(m *testing.M) { yard.Main(m, y.Start) }
package yard
