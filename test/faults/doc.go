// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faults tests what the design promises when clusters, networks and processes fail: one test for each fault, on a hub and three
// workers with real API servers, of which south is never broken. After each test a recorder of all that has really happened is asked:
// no two copies of a job could run at the same time, every job has ended or says why not, what the hub says is what the right copy said
// last, nothing is written after the end, and nothing is left when the jobs are gone.
//
// It is a module of its own, so that the product does not depend on toxiproxy. What the tests stand on: links (a network that fails),
// history (the recorder), world (a yard with both).
//
// Tests of one worker take it from a pool and run at the same time. Those that break the hub or the manager run alone, before them.
package faults
