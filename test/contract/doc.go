// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package contract runs the integration suites of the Kubeflow Trainer, at the version that go.mod requires, against
// the TrainJob controller and the webhooks of this repository: our code has to do what upstream expects of its own
// code.
//
//	make test-contract
//	go -C test/contract test . -run 'TestUpstream/controller/.*Jax' -v
//
// No code of upstream's is in this repository. The files of the suites are copied from the module cache to
// _output/contract. go build compiles them as packages of this module, with an overlay. In the copies
//
//   - the package framework is the one of this module, which starts our code instead of upstream's;
//   - limits of time are longer, for a machine with other work;
//   - a test that fails does not end later tests;
//   - a test that deletes an object and waits until there is none also accepts a new object of the name, because the
//     controller may be faster than the test;
//   - containers of runtimes and of expected JobSets that had no image have one: the API server refuses pods without an
//     image, and so our webhook refuses such a TrainJob.
//
// Each test of upstream's is a sub-test here. Tests that we fail on purpose are in differences_test.go, with the
// reason, and are reported as skipped. They run all the same. If such a test passes, or fails in another way than the
// list says, the run fails. It also fails if an entry of the list has no test.
//
// After a run, _output/contract has a log and a report (JSON) of each suite.
//
// # Why a module of its own
//
// The suites need ginkgo, which nothing else here uses. A module that imports Trainyard does not get it.
package contract
