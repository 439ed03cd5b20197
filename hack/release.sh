#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0

# Builds images and releases:
#
#   hack/release.sh images|push|release [flags, see --help]
#
# VERSION, REGISTRY and DOWNLOADS in the environment are the defaults of the flags. The bytes of images depend on the
# version of Go. So it is the one that hack/release/go.mod names; Go downloads it if it is another one.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

GOTOOLCHAIN=${GOTOOLCHAIN:-$(awk '$1 == "toolchain" { print $2 }' hack/release/go.mod)}
export GOTOOLCHAIN
exec go -C hack/release run . "$@"
