// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faults tests what the design promises when clusters, networks and processes fail. It has one test for each
// fault, on a hub and three workers with real API servers. No fault ever hits the worker south. After each test a
// recorder says what has really happened. The test checks that no two copies of a job could run at the same time, that
// every job has ended or says why not, that the hub has the last status of the right copy, that nothing was written
// after the end, and that nothing is left when the jobs are gone.
//
// It has its own module, so that the product does not depend on toxiproxy. The tests use the packages links (a network
// that fails), history (the recorder), and world (a yard with both).
//
// To add a fault: write a test TestFault... that begins with with (one worker of the pool) or alone (the hub or the
// manager breaks), in processes_test.go if a process or a network fails.
// Helpers are in main_test.go. Give it a row in docs/failures.md; a test checks that there is one. A process that
// dies at each of its writes is in package crashes.
//
// A test that needs one worker takes it from a pool, so such tests run at the same time. Tests that break the hub or
// the manager run alone, before them.
package faults
