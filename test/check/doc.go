// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package check has what tests on real API servers do most often: stop at an error (Must), wait (Eventually, Within),
// and read what is there now (TrainJob, Dispatch). A package of tests gives these its own short names:
//
//	var must, eventually = check.Must, check.Within(waitLimit, 20*time.Millisecond)
//
// These functions also work in a Cleanup of the test. Parallel is for TestMain.
package check
