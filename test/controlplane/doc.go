// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Controlplane is a Kubernetes control plane in one binary: etcd,
// kube-apiserver, kube-controller-manager, kube-scheduler and kubectl, built
// from Go modules, so that tests and the demo have real clusters where there
// is neither Docker nor a download of release binaries.
//
//	controlplane etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kubectl [flags]
//	controlplane run -- COMMAND [ARGUMENT...]
//
// The part is also chosen by the name of the binary, so that a symlink called
// kubectl is kubectl. hack/build-controlplane.sh builds it with the version
// set: without one, clients cannot parse what /version says.
//
// # Other releases
//
// go.mod has the release that product, CI and most tests have: then the control plane shares the compiled libraries
// with the product, which is most of what a build compiles. releases/1.34.mod and the like have other releases, for the
// same sources: go build -modfile=releases/1.34.mod. hack/build-controlplane.sh says how, and Options.Release of
// test/clusters starts them. To update one of them, change the versions in it, and run
//
//	GOWORK=off go -C test/controlplane mod tidy -modfile=releases/1.34.mod
//
// # Ending with the parent
//
// With TRAINYARD_END_WITH_STDIN=1 a part ends when its standard input does.
// The launcher (test/clusters) gives each part the read end of a pipe whose
// write end only it holds, so a launcher that is killed takes its clusters with
// it, on every system. The run part does the same for a binary that knows
// nothing of this: it starts it, passes signals on, kills it at the end of
// standard input and exits with its code.
//
// # Departures from a real cluster
//
// The job controller here works in batches of 100 ms instead of one second
// and waits one second instead of ten before it replaces a failed pod, so that
// a test of retries takes seconds. The logic is the same.
//
// With --openapi=false, a flag that upstream lacks, kube-apiserver serves no
// OpenAPI documents of Kubernetes' own kinds, but those of custom resources.
//
// # Why a module of its own
//
// k8s.io/kubernetes asks for its staging modules at v0.0.0 and needs a replace
// for each of them. Because they are here, modules that import Trainyard get neither these requirements nor 250
// indirect ones. JobSet's manager, kwok and Helm are tools of this module for the same reason, and because they share its
// compiled packages.
package main
