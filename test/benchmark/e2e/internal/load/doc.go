// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package load is the user: it creates TrainJobs on the hub.
package load
