// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Program trainers is the Kubeflow Trainer of an older release, from its Go module, for tests of workers that have it.
// hack/build-trainers.sh builds one program for each release. No code of upstream's is in this repository.
//
//	bin/trainer-2.0 objects                   what the release makes of TrainJobs: reads Cases, and writes Answers, as JSON
//	bin/trainer-2.0 manager --kubeconfig=...  the controllers of the release, and its webhooks if --certs names a directory
//
// The release of go.mod is 2.2. The others are in releases, as in test/controlplane. What differs in how the releases are
// started is in a file for each, which a build tag selects.
//
// # Why a module of its own
//
// The releases belong to older versions of Kubernetes' libraries.
package main
