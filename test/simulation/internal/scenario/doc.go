// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scenario describes what is simulated: a fleet, a stream of jobs, and what of the time is measured. A Scenario is a YAML file,
// or one of those that are built in.
package scenario
