// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servers starts the API servers for tests of a controller: a hub and workers. Each is an etcd and an API
// server (package clusters) with all CRDs and without controllers. The tests do by hand what controllers would do.
//
// A package of tests has one Set. The first test that needs it starts it, and TestMain stops it. Share does both:
//
//	var shared = servers.Share(newEnvironment, "worker")
//
//	func TestMain(m *testing.M) { shared.Main(m) }
//
// A test calls shared.Get for what newEnvironment has made of the Set. The tests share it, so each test uses its own
// namespace. ShareWith is for tests that need other clusters, for instance with nodes and controllers.
//
// Only the start is safe for concurrent use: sync.Once guards it. newEnvironment calls Cleanup, before the tests run.
package servers
