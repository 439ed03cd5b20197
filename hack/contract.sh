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

root=$PWD
output=_output/test
mkdir -p "$output"
rm -f "$output/contract.json"
export GOMAXPROCS=1 GOGC=400 # As in hack/test.sh.
# Never cached: the API servers are not inputs that go test knows.
cd test/contract
exec "$root/hack/gotestsum.sh" --format testname --format-hide-empty-pkg \
  --jsonfile "$root/$output/contract.json" -- -vet=off '-ldflags=-s -w' -count=1 -timeout "${TIMEOUT:-30m}" "$@" ./...
