// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package check has what tests do most often: stop at an error (Must), compare (Equal, Diff) and wait (Eventually,
// Within). A package of tests gives these its own short names:
//
//	var must, eventually = check.Must, check.Within(waitLimit, 20*time.Millisecond)
//
// These functions also work in a Cleanup of the test. Parallel is for TestMain. The package imports nothing of this
// module, so that all tests can import it.
package check
