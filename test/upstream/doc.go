// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upstream checks the binaries of a Kubernetes release, which clusters use instead of our own control plane if
// $TRAINYARD_KUBERNETES names their directory. Then nobody has to compile Kubernetes.
//
// The directory has etcd, kube-apiserver and kubectl, like the KUBEBUILDER_ASSETS of controller-runtime's envtest, and
// beside them kube-controller-manager and kube-scheduler. KUBEBUILDER_ASSETS itself is not the variable: many
// developers of controllers have set it for other projects, to a directory without the last two, or with another
// version.
//
// The package imports only the standard library, so that the program check, which hack/build-controlplane.sh runs
// before it builds anything, is compiled in seconds.
package upstream
