#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs golangci-lint:
#
#   hack/lint.sh [fmt] [golangci-lint flags]
#
# The linter is pinned in hack/tools/lint, a module of its own, so that the
# small tools do not wait for the big one to build. It includes go vet. Every
# module with Go code is linted but two: the modules test/controlplane and
# hack/kindnode are vetted and their format is checked, but they are not linted.
# Their few files import all of Kubernetes, which takes the linter minutes and
# 10 GB of memory.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=hack/flags.sh
source hack/flags.sh
# shellcheck source=hack/modules.sh
source hack/modules.sh

root=$PWD
command=run
if [[ ${1:-} == fmt ]]; then
  command=fmt
  shift
fi

mkdir -p bin
go -C hack/tools/lint build -o "$root/bin/golangci-lint" github.com/golangci/golangci-lint/v2/cmd/golangci-lint

if [[ $command == fmt ]]; then
  exec bin/golangci-lint fmt "$@"
fi
code=0
for module in $(code_modules); do
  [[ $module != test/controlplane && $module != hack/kindnode ]] || continue
  (cd "$module" && "$root/bin/golangci-lint" run "$@" ./...) || code=1
done
unformatted=$(bin/golangci-lint fmt --diff test/controlplane hack/kindnode) || true
if [[ -n $unformatted ]]; then
  printf '%s\nmake fmt repairs this.\n' "$unformatted" >&2
  code=1
fi
exit "$code"
