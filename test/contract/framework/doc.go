// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package framework runs the TrainJob controller and the webhooks of this repository under the integration suites of
// the Kubeflow Trainer. The suites reach what they test through one type, Framework, with the methods Init, RunManager
// and Teardown. Package contract replaces upstream's Framework by this one. Everything else in the suites stays
// upstream's.
//
// The cluster is one of package clusters: an API server and its etcd, without controllers, as upstream's suites have it
// from envtest. So the tests write the statuses of JobSets, and no webhook of JobSet's is called.
//
// State under a lock: none. A suite uses one Framework at a time.
package framework
