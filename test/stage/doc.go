// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stage has what the tests of a controller need beside the controller. There are two types.
//
// A Stage is a hub and workers. Each is an etcd and an API server (package clusters) with all CRDs and without
// controllers. A package of tests has one Stage. The first test that needs it starts it, and TestMain stops it:
//
//	var shared = stage.Share(prepare, "east", "west")
//
//	func TestMain(m *testing.M) { shared.Main(m) }
//
//	func prepare(ctx context.Context, s *stage.Stage) error {
//		return errors.Join(s.Hub.InstallRuntime(ctx), s.StartCaches(ctx), s.Connect(remote.Options{}))
//	}
//
// A Scene is what one test has on the Stage: a namespace, a fake clock, the Events, and verbs. With the verbs the test
// does by hand what users, admins and other controllers do: Submit a TrainJob, Place it, Register a worker. A package
// adds its own reconciler, and the helpers of its subject:
//
//	type scene struct {
//		*stage.Scene
//		reconciler *Reconciler
//	}
//
//	s := &scene{Scene: shared.Get(t).Scene(t)}
//
// ShareWith is for tests of one whole cluster, for instance with nodes and controllers: StartServer starts it,
// and RunProgram a manager or an agent beside it.
//
// Only the start, Events and Warnings are safe for concurrent use. prepare calls Cleanup, before the tests run.
package stage
