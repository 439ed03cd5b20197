#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the integration suites of the Kubeflow Trainer against our TrainJob
# controller and webhooks, see test/contract/doc.go:
#
#   hack/contract.sh [go test flags]
#
# It takes bin/controlplane, which make controlplane builds. The suites' logs
# and reports are in _output/contract.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=hack/flags.sh
source hack/flags.sh

root=$PWD
output=_output/test
mkdir -p "$output"
rm -f "$output/contract.json"
export GOMAXPROCS=1 GOGC=400 # As in hack/test.sh.
# The tests compile upstream's suites with our code. bin/kubectl is a link to the control plane, or into a release.
code=$(go -C test/contract list -export -deps -f '{{.BuildID}}' ./framework | git hash-object --stdin)
TRAINYARD_INPUTS="$code $(hack/inputs.sh bin/kubectl bin/jobset-manager config)"
export TRAINYARD_INPUTS
cd test/contract
exec "$root/hack/gotestsum.sh" --format testname --format-hide-empty-pkg \
  --jsonfile "$root/$output/contract.json" -- -vet=off '-ldflags=-s -w' -timeout "${TIMEOUT:-30m}" "$@" .
