#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds what test/clusters runs, from the Go module test/controlplane:
#   bin/controlplane    etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl in one
#   bin/kubectl         a link to it
#   bin/jobset-manager  JobSet's controllers and webhooks
#   bin/kwok            plays nodes and the pods on them
# Go's build cache decides what there is to do: nothing changed, nothing built. Flags and versions are those of the product,
# so that they share what they have in common, which is most of Kubernetes' libraries (make verify compares the versions).
#
#   hack/build-controlplane.sh 1.34 1.37
#
# builds only the control planes of other Kubernetes releases, from the same sources with the versions of
# test/controlplane/releases: bin/1.34/controlplane and bin/1.37/controlplane. They share nothing with the product, so that
# the first build of each takes minutes.
#
# With TRAINYARD_KUBERNETES=directory, where a Kubernetes release has its binaries, bin/controlplane is not built, and
# bin/kubectl is a link to the release's: see test/upstream. Other releases are in directories below, like directory/1.34.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
bin="${TRAINYARD_BIN:-${root}/bin}"
mkdir -p "${bin}"
bin="$(cd "${bin}" && pwd)"
# shellcheck source=hack/flags.sh
source "${root}/hack/flags.sh"
cd "${root}/test/controlplane"

# What a user's workspace or flags say is not for this module.
export GOWORK=off
parallel="${BUILD_PARALLEL:-$(getconf _NPROCESSORS_ONLN)}"

# Says how far a build has come.
go -C "${root}" build -o "${bin}/gobuild" ./hack/gobuild

build() { # OUTPUT PACKAGE LDFLAGS [MODFILE]
  local started=${SECONDS}
  echo "building bin/${1} ..."
  "${bin}/gobuild" "${1}" -buildvcs=false ${4:+"-modfile=${4}"} -p "${parallel}" -ldflags "${3}" -o "${bin}/${1}" "${2}"
  "${root}/hack/stamp.sh" "${bin}/${1}"
  echo "built bin/${1} in $((SECONDS - started)) s"
}

build_controlplane() { # OUTPUT [MODFILE]
  local kubernetes major minor version=k8s.io/component-base/version
  # Without a version, clients cannot parse the answer of /version.
  kubernetes="$(go list -modfile="${2:-}" -m -f '{{.Version}}' k8s.io/kubernetes)"
  IFS=. read -r major minor _ <<<"${kubernetes#v}"
  build "${1}" . "-s -w -X ${version}.gitVersion=${kubernetes} -X ${version}.gitMajor=${major} -X ${version}.gitMinor=${minor}" "${2:-}"
}

for release; do
  modfile="releases/${release}.mod"
  if [[ ! -f "${modfile}" ]]; then
    echo "there is no test/controlplane/${modfile}: want one of $(basename -s .mod -a releases/*.mod | paste -sd ' ')" >&2
    exit 1
  fi
  if [[ -n "${TRAINYARD_KUBERNETES:-}" ]]; then
    TRAINYARD_KUBERNETES+="/${release}" go -C "${root}" run ./test/upstream/check "test/controlplane/${modfile}"
  else
    mkdir -p "${bin}/${release}"
    build_controlplane "${release}/controlplane" "${modfile}"
  fi
done
(($# == 0)) || exit 0

if [[ -n "${TRAINYARD_KUBERNETES:-}" ]]; then
  go -C "${root}" run ./test/upstream/check test/controlplane/go.mod
  kubectl="${TRAINYARD_KUBERNETES}/kubectl"
else
  if [[ ! -x "${bin}/controlplane" ]]; then
    echo "The first build of the control plane takes minutes (about 8 on two cores); later ones take seconds."
  fi
  build_controlplane controlplane
  kubectl=controlplane
fi
[[ $(readlink "${bin}/kubectl") == "${kubectl}" ]] || ln -sf "${kubectl}" "${bin}/kubectl" # A new link would be a new input of tests.
build jobset-manager sigs.k8s.io/jobset "-s -w"
build kwok sigs.k8s.io/kwok/cmd/kwok "-s -w"
