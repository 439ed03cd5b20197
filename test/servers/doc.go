// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servers starts what the tests of a controller stand on: a hub and workers that are etcd and an API server each, without
// controllers (package clusters), with all CRDs. What controllers would do, the tests do by hand.
//
// A package of tests has one Set, which the first test that wants it starts and TestMain stops. Share is for both:
//
//	var shared = servers.Share(newEnvironment, "worker")
//
//	func TestMain(m *testing.M) { shared.Main(m) }
//
// A test calls shared.Get for what newEnvironment has made of the Set. The tests share it, so each takes a namespace of its own.
//
// Under a lock: nothing but the start, which sync.Once guards. Cleanup is for newEnvironment, before the tests run.
package servers
