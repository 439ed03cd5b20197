// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package contract runs the integration suites of the Kubeflow Trainer, at the version that go.mod requires, against the TrainJob
// controller and the webhooks of this repository: what upstream expects of those is what we have to do.
//
//	make test-contract
//	go -C test/contract test . -run 'TestUpstream/controller/.*Jax' -v
//
// No code of upstream's is in this repository. The files of the suites are copied from the module cache to _output/contract, and
// compiled as packages of this module by means of go build's overlay. In the copies
//
//   - the package framework is the one of this module, which starts our code instead of upstream's;
//   - limits of time are longer, for a machine with other work;
//   - a test that fails does not end those after it;
//   - a test that deletes an object and waits until there is none is content with another one in its place, as the controller may
//     be the faster one;
//   - containers of runtimes, and of the JobSets that are expected, have an image where they had none: the API server takes no
//     pod without, and so our webhook no such TrainJob.
//
// Each test of upstream's is a sub-test here. Those that we do not pass on purpose are in differences_test.go, with the reason, and
// are reported as skipped. They run all the same: one that passes, or fails in another way than the list says, fails the run, and
// so does an entry of the list without a test.
//
// After a run, _output/contract has a log and a report (JSON) of each suite.
//
// # Why a module of its own
//
// The suites need ginkgo, which nothing else here uses. Those who import Trainyard do not get it.
package contract
