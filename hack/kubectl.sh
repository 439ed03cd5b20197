# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash

# Sourced by scripts: defines run_kubectl, which runs $KUBECTL, or the kubectl
# that make controlplane has built, or the one on the PATH.

if [[ -z ${KUBECTL:-} ]]; then
  KUBECTL=$(dirname "${BASH_SOURCE[0]}")/../bin/kubectl
  if [[ ! -x $KUBECTL ]] && ! KUBECTL=$(command -v kubectl); then
    echo "error: no kubectl: put one on the PATH, or run make controlplane" >&2
    exit 1
  fi
fi

run_kubectl() { "$KUBECTL" "$@"; }
