#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs helm, and builds it first:
#
#   hack/helm.sh lint charts/trainyard
#
# Helm is pinned in hack/tools/helm, a module of its own: its Kubernetes libraries are not those of go.mod.

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "$root/bin"
go -C "$root/hack/tools/helm" build -trimpath -ldflags '-s -w' -o "$root/bin/helm" helm.sh/helm/v4/cmd/helm
exec "$root/bin/helm" "$@"
