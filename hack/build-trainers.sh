#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds bin/trainer-2.0, bin/trainer-2.1 and bin/trainer-2.2 from the Go module test/trainers: older releases of the
# Kubeflow Trainer, for tests of workers that have them. Go's build cache decides what there is to do.
#
#   hack/build-trainers.sh [RELEASE...]
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
bin="${TRAINYARD_BIN:-${root}/bin}"
mkdir -p "${bin}"
bin="$(cd "${bin}" && pwd)"
# shellcheck source=hack/flags.sh
source "${root}/hack/flags.sh"
cd "${root}/test/trainers"

# What a user's workspace says is not for this module.
export GOWORK=off

(($# > 0)) || set -- 2.0 2.1 2.2
for release; do
  flags=()
  case "${release}" in
  2.0 | 2.1) flags=("-modfile=releases/${release}.mod" -tags=before22) ;;
  2.2) ;;
  *)
    echo "there is no test/trainers/releases/${release}.mod: want 2.0, 2.1 or 2.2" >&2
    exit 1
    ;;
  esac
  if [[ ! -x "${bin}/trainer-${release}" ]]; then
    echo "The first build of Kubeflow Trainer ${release} takes minutes; later ones take seconds."
  fi
  go build -buildvcs=false "${flags[@]}" -ldflags "-s -w" -o "${bin}/trainer-${release}" .
  "${root}/hack/stamp.sh" "${bin}/trainer-${release}"
done
