// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package beside tests Trainyard on a hub that has a real Kueue too: both of Kueue's dispatchers of TrainJobs, the hub
// as a gate and MultiKueue, with Trainyard's manager beside them and workers for each. "make test-kueue" runs it. It
// needs the binary of hack/build-kueue.sh, so CI does not run it.
package beside
