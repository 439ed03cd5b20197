// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stream has the jobs of a simulation, and makes them from a described distribution: sizes, lognormal
// durations, Poisson arrivals at an offered load. Package trace makes them from recorded jobs.
//
// The same Spec, pools and seed give the same jobs, on every machine. All systems that are compared get the same.
package stream
