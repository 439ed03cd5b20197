// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command broken shows that the fault tests see what they are for: it breaks one promise of the product after the other, and runs the
// tests that have to fail then.
//
//	go run ./broken            # all promises, which takes about half an hour
//	go run ./broken -run drain # those whose name matches
//
// A promise is broken by an edit of the product's source (promises.go), which only the build of that one manager and agent sees (go build
// -overlay). The product has no switches for tests. That every edit still applies, and every test still exists, is tested in CI; so is
// that docs/failures.md names all tests of faults, and no others.
package main
