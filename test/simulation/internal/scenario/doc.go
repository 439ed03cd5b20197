// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scenario describes what is simulated: a fleet, a stream of jobs, and which part of the time is measured. A
// Scenario is a YAML file or is built in.
package scenario
