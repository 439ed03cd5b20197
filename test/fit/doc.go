// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fit compares what Trainyard says about the fit of a gang with what Kubernetes' own scheduler does. Its test
// makes random nodes, devices, policies of admission and gangs on a real API server. For each gang it computes the fit
// from what the API server has, and then creates the pods.
//
//	go test ./test/fit -cases 500 -seed 7
//	TRAINYARD_RELEASE=1.37 go test ./test/fit -cases 500 -seed 7      # after hack/build-controlplane.sh 1.37
//
// For equal pods the scheduler never binds a gang of which Trainyard says that it lacks something. Of the gangs of which
// Trainyard says that they fit, at most one in fifty is not bound.
package fit
