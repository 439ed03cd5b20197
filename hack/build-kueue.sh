#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds bin/kueue, Kueue's own manager, from the Go module test/benchmark/kueue: what the end-to-end benchmark compares with.
# Go's build cache decides what there is to do.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
bin="${TRAINYARD_BIN:-${root}/bin}"
mkdir -p "${bin}"
bin="$(cd "${bin}" && pwd)"
# shellcheck source=hack/flags.sh
source "${root}/hack/flags.sh"
cd "${root}/test/benchmark/kueue"

# What a user's workspace says is not for this module.
export GOWORK=off

if [[ ! -x "${bin}/kueue" ]]; then
  echo "The first build of Kueue takes minutes; later ones take seconds."
fi
go build -ldflags "-s -w" -o "${bin}/kueue" sigs.k8s.io/kueue/cmd/kueue
"${root}/hack/stamp.sh" "${bin}/kueue"
