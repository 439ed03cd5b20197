// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command broken shows that the fault tests find what they are for. It breaks one promise of the product after the
// other, and runs the tests that then have to fail.
//
//	go run ./broken            # all promises, which takes about half an hour
//	go run ./broken -run drain # promises whose name matches
//
// It breaks a promise by an edit of the product's source (promises.go). Only the build of one manager and agent sees
// the edit (go build -overlay). The product has no switches for tests. Tests in CI check that every edit still applies,
// that every named test exists, and that docs/failures.md names all tests of faults, and no others.
package main
