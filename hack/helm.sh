#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs helm, and builds it first:
#
#   hack/helm.sh lint charts/trainyard
#
# Helm is pinned in test/controlplane, and so shares the compiled Kubernetes libraries.

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=hack/flags.sh
source "$root/hack/flags.sh"
mkdir -p "$root/bin"
go -C "$root/test/controlplane" build -ldflags '-s -w' -o "$root/bin/helm" helm.sh/helm/v4/cmd/helm
"$root/hack/stamp.sh" "$root/bin/helm"
exec "$root/bin/helm" "$@"
