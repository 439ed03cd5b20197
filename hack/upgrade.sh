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

old=$(hack/build-commit.sh "$from" UPGRADE_FROM)

# The scripts of the old version have no bin/ of their own.
export KUBECTL=$root/bin/kubectl
export TRAINYARD_UPGRADE_FROM=$old
exec go -C test/faults test ./upgrade -count=1 -timeout "${TIMEOUT:-60m}" -v "$@"
