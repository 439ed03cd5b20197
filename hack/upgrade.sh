#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0

# Tests the upgrade from an older version to this one, and the way back, with the programs and manifests of both:
#
#   hack/upgrade.sh [go test flags]
#   UPGRADE_FROM=COMMIT hack/upgrade.sh      # from another commit
#
# It takes the binaries of make build and make controlplane. With FAULTS_DIR=directory the logs of all processes stay there.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

root=$PWD
# The version from which an upgrade is tested. A release changes it to the release before.
from=${UPGRADE_FROM:-1ca39a2ac193c429392bcf73a2e1f3342b242f52}

fail() {
  echo "error: $*" >&2
  exit 1
}

if ! commit=$(git rev-parse --verify --quiet "$from^{commit}"); then
  [[ $(git rev-parse --is-shallow-repository) == false ]] ||
    fail "commit $from is not in this shallow clone: run git fetch --unshallow, or set UPGRADE_FROM to a commit that is there"
  fail "there is no commit $from: set UPGRADE_FROM to a commit of this repository"
fi

# A clone that shares the objects, so that neither this work tree nor its list of work trees changes.
old=$root/_output/upgrade/$commit
if [[ ! -d $old/source ]]; then
  rm -rf "$old"
  git clone --quiet --shared --no-checkout "$(git rev-parse --path-format=absolute --git-common-dir)" "$old/checkout"
  git -C "$old/checkout" checkout --quiet --detach "$commit"
  mv "$old/checkout" "$old/source" # Only a complete one has this name.
fi
echo "building $(git -C "$old/source" log -1 --format='%h %s') ..."
go -C "$old/source" build -o "$old/programs/" ./cmd/...

# The scripts of the old version have no bin/ of their own.
export KUBECTL=$root/bin/kubectl
export TRAINYARD_UPGRADE_FROM=$old
exec go -C test/faults test ./upgrade -count=1 -timeout "${TIMEOUT:-60m}" -v "$@"
