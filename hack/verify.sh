#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0

# Checks what a commit must not break without a test noticing. Runs every check
# and fails at the end, so that one run tells all. Uncommitted work is fine. No
# check changes a file of the repository.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=hack/flags.sh
source hack/flags.sh
# shellcheck source=hack/modules.sh
source hack/modules.sh

failed=()

check() {
  local name=$1
  shift
  echo "--- $name"
  if ! "$@"; then
    failed+=("$name")
  fi
}

# Prints the files that git knows or would add, and that are there, with NUL after each.
files() {
  local file
  git ls-files -z --cached --others --exclude-standard --deduplicate | while IFS= read -r -d '' file; do
    [[ ! -f $file ]] || printf '%s\0' "$file"
  done
}

# Prints a checksum of each file in the present folder.
state() { find . -type f -print0 | sort -z | xargs -0 sha256sum; }

# Generates in the present folder, and fails if that changes a file.
regenerate() {
  local before
  before=$(state)
  go generate ./... || return
  diff <(echo "$before") <(state) >/dev/null && return
  echo "make generate changes these files; run it and commit them:" >&2
  diff <(echo "$before") <(state) | awk '/^[<>]/ { print "  " $3 }' | sort -u >&2
  return 1
}

# Generates in a copy, because other steps of CI compile and apply the files meanwhile.
generated() {
  local copy code=0
  copy=$(mktemp -d) || return
  files | tar -c --null -T - -f - | tar -x -C "$copy" -f - && (cd "$copy" && regenerate) || code=1
  rm -rf "$copy"
  return "$code"
}

tidy() {
  local module code=0
  for module in $(all_modules); do
    go -C "$module" mod tidy -diff || { echo "go mod tidy changes $module/go.mod or go.sum" >&2; code=1; }
  done
  return "$code"
}

# Prints the modules of packages, with their versions: module PACKAGES...
versions() { go -C "$1" list -deps -f '{{with .Module}}{{if .Version}}{{.Path}} {{.Version}}{{end}}{{end}}' "${@:2}" | sort -u; }

# What product and control plane have in common is compiled once, if its versions are the same. CEL is not: the API server
# has what real ones have.
shared_versions() {
  local different
  different=$(join <(versions . ./cmd/...) <(versions test/controlplane . tool) | awk '$2 != $3 && $1 !~ /cel-go|antlr/')
  [[ -n $different ]] || return 0
  printf '%s\n' "$different" "these modules have other versions in go.mod (first) than in test/controlplane/go.mod: go get the later one" >&2
  return 1
}

# hack/lint.sh vets every module but these two. The kubelet and CoreDNS are left out: nothing else here needs them compiled.
vet_controlplane() {
  go -C test/controlplane vet ./... &&
    go -C hack/kindnode vet ./pause ./podnet
}

scripts() {
  local script code=0
  for script in .ci/run hack/*.sh; do
    bash -n "$script" || code=1
    [[ $(head -c 2 "$script") != '#!' || -x $script ]] || { echo "$script is not executable" >&2; code=1; }
  done
  return "$code"
}

manifests() {
  local kustomization code=0
  if ! (source hack/kubectl.sh) 2>/dev/null; then
    echo "skipped: rendering config/ takes kubectl, which make controlplane builds"
    return
  fi
  # shellcheck source=hack/kubectl.sh
  source hack/kubectl.sh
  for kustomization in $(git ls-files --cached --others --exclude-standard -- 'config/**/kustomization.yaml'); do
    # A component is rendered with the CRD that it patches.
    [[ $kustomization != config/crd/trainjob-any-manager/* ]] || continue
    run_kubectl kustomize "$(dirname "$kustomization")" >/dev/null || code=1
  done
  hack/trainjob-crd.sh >/dev/null || code=1
  return "$code"
}

# Each way to use the chart is linted and rendered. That it is the same as config/ is a test of test/e2e-multicluster/chart.
chart() {
  local values code=0
  for values in '' worker.enabled=true,hub.enabled=false workerAgent.enabled=true,hub.enabled=false \
    worker.enabled=true,workerAgent.enabled=true,networkPolicy.enabled=true,namespace.create=true; do
    hack/helm.sh lint --strict --quiet charts/trainyard --set "$values" || code=1
    bin/helm template trainyard charts/trainyard --set "$values" >/dev/null || code=1
  done
  return "$code"
}

check "generated files" generated
check "go mod tidy" tidy
check "versions of product and control plane" shared_versions
check "go vet of test/controlplane and hack/kindnode" vet_controlplane
check "scripts" scripts
check "manifests" manifests
check "chart" chart
check "method sets" go run ./hack/methodsets
check "lint" hack/lint.sh

if ((${#failed[@]} > 0)); then
  printf 'verify: failed: %s\n' "$(IFS=,; echo "${failed[*]}")" >&2
  exit 1
fi
echo "verify: all checks passed"
