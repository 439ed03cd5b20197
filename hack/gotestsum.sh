#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the pinned gotestsum in the present folder:
#
#   hack/gotestsum.sh [gotestsum flags] -- [go test flags] packages
#
# Not with "go tool": it exits with 0 when what it runs is killed, for want of memory for example.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
gotestsum=$(go -C "$root" tool -modfile=hack/tools/go.mod -n gotestsum)
exec "$gotestsum" "$@"
