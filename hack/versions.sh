#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the end-to-end tests with hubs and workers of several Kubernetes releases:
#
#   hack/versions.sh [HUB:WORKER...]     # default: all pairs below
#
# It builds the control planes of these releases, and writes what came out into test/e2e-multicluster/releases.tsv, from
# which go generate makes the table of docs/install.md. The output of each pair is in _output/versions. Environment:
# TIMEOUT is the time for one package of tests.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=hack/flags.sh
source hack/flags.sh

default=1.36 # That of test/controlplane/go.mod, which make controlplane builds.
pairs=("$@")
((${#pairs[@]} > 0)) || pairs=(1.34:1.34 1.34:1.36 1.34:1.37 1.36:1.35 1.36:1.36 1.37:1.34 1.37:1.37)
# The other packages test nothing that a release could change.
packages=(./test/e2e-multicluster ./test/e2e-multicluster/{chart,leaving,sick})
results=test/e2e-multicluster/releases.tsv
output=_output/versions
mkdir -p "$output"
export GOMAXPROCS=1 GOGC=400 # As in hack/test.sh.

# Prints the version of Kubernetes that a release has here.
version_of() {
  local file=test/controlplane/releases/$1.mod
  [[ $1 != "$default" ]] || file=test/controlplane/go.mod
  awk '$1 == "k8s.io/kubernetes" { print $2 }' "$file"
}

# Counts the tests of a pair with a result, without those that are parts of others.
count() { grep -cE "\"Action\":\"$2\".*\"Test\":\"[^/\"]*\"" "$output/$1.json" || true; }

# Replaces the line of a pair in the results.
record() {
  local hub=$1 worker=$2 line=$3
  touch "$results"
  { grep -vP "^v\Q$hub\E\.[^\t]*\tv\Q$worker\E\." "$results" || true; printf '%s\n' "$line"; } | sort -V >"$output/results"
  cp "$output/results" "$results"
}

mapfile -t releases < <(tr ': ' '\n' <<<"${pairs[*]}" | sort -uV | grep -vx "$default")
((${#releases[@]} == 0)) || GOMAXPROCS='' hack/build-controlplane.sh "${releases[@]}"

failed=()
for pair in "${pairs[@]}"; do
  hub=${pair%:*} worker=${pair#*:}
  printf '\n=== hub %s, workers %s\n' "$hub" "$worker"
  code=0
  TRAINYARD_HUB_RELEASE=$hub TRAINYARD_RELEASE=$worker hack/gotestsum.sh --format testname --format-hide-empty-pkg \
    --jsonfile "$output/$pair.json" -- -vet=off '-ldflags=-s -w' -p "${PACKAGES:-2}" -timeout "${TIMEOUT:-40m}" "${packages[@]}" || code=$?
  wrong=$(count "$pair" fail)
  if ((code != 0)); then
    failed+=("$pair")
    wrong=$((wrong > 0 ? wrong : 1)) # No test has failed, but one has not begun.
  fi
  record "$hub" "$worker" "$(printf '%s\t' "$(version_of "$hub")" "$(version_of "$worker")" \
    "$(count "$pair" pass)" "$(count "$pair" skip)")$wrong"
done

go generate ./hack/docs
printf '\nhub\tworkers\tpassed\tskipped\tfailed\n'
cat "$results"
if ((${#failed[@]} > 0)); then
  echo "failed: ${failed[*]}" >&2
  exit 1
fi
