#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the tests of test/faults, a Go module of its own: whole processes on a hub and workers that fail.
#
#   hack/faults.sh                    # every fault by its name, crashes at every write, and a soak of three minutes
#   hack/faults.sh short              # only a soak of 45 s, always the same faults: what CI runs
#   hack/faults.sh soak [flags]       # only the soak: -duration 30m -rate 5 -seed N; without a seed one is drawn, and printed
#   hack/faults.sh broken [flags]     # break one promise after the other, and see that its tests fail: -run REGEXP chooses promises
#
# They take the binaries of make build, make controlplane and, but for the soak, hack/build-kueue.sh. With FAULTS_DIR=directory the logs of all processes stay there.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=hack/flags.sh
source hack/flags.sh

root=$PWD
output=$root/_output/test
mkdir -p "$output"

run() {
  local name=$1
  shift
  rm -f "$output/$name.json"
  (cd test/faults && "$root/hack/gotestsum.sh" --format testname --format-hide-empty-pkg \
    --jsonfile "$output/$name.json" -- -vet=off '-ldflags=-s -w' -p 1 "$@")
}

soak() { run soak -timeout "${TIMEOUT:-20m}" ./soak "$@"; }

case ${1:-} in
soak)
  shift
  [[ " $* " == *" -duration "* ]] || set -- -duration 30m "$@"
  # The soak says itself when it waits for too long.
  exec go -C test/faults test ./soak -run TestSoak -count=1 -timeout 0 -v -args "$@"
  ;;
broken)
  shift
  exec go -C test/faults run ./broken "$@"
  ;;
"")
  failed=0
  mapfile -t packages < <(go -C test/faults list ./... | grep -vE '/(soak|upgrade)$')
  run faults -count=1 -timeout "${TIMEOUT:-20m}" "${packages[@]}" || failed=1
  soak -count=1 -args -duration 3m -seed 1 || failed=1
  exit "$failed"
  ;;
short)
  # bin/kubectl is a link to the control plane, or into a release.
  TRAINYARD_INPUTS=$(hack/inputs.sh bin/{kubectl,jobset-manager,kwok,manager,worker-agent} config)
  export TRAINYARD_INPUTS
  soak -short
  ;;
*)
  sed -n '7,10s/^# *//p' "${BASH_SOURCE[0]}" >&2
  exit 2
  ;;
esac
