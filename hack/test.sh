#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs one suite of tests:
#
#   hack/test.sh unit|harness|concurrent|integration|e2e [go test flags]
#   hack/test.sh list        # which package is in which suite
#   hack/test.sh summary     # add up what the last runs of the suites reported
#
# The suite of a package is computed, so that no test can be forgotten: e2e is
# what lies under test/e2e-multicluster, and what starts clusters under hack;
# integration is every other package whose tests depend on test/clusters (real
# API servers), but concurrent
# if it is one of those that run with the race detector. Of the rest, unit is what
# has goroutines or locks, with the race detector, and sequential is what has
# none, without: both are run by unit. Harness is every package of the other
# modules but those that start clusters. make verify vets the tests, so go test
# does not. Environment: RACE=0 turns the race detector off (it needs cgo),
# RACE=all turns it on for integration; TIMEOUT overrides the time for one
# package, PACKAGES the number of packages at a time.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=hack/flags.sh
source hack/flags.sh
# shellcheck source=hack/modules.sh
source hack/modules.sh

output=_output/test
module=$(go list -m)
# make verify vets the tests. Nobody runs a debugger on a test binary: without the tables for one it is linked sooner, and
# is about a third smaller. Stacks of panics and races need other tables.
flags=(-vet=off '-ldflags=-s -w')
# The packages below test/ that start clusters. make test-faults, test-upgrade, test-fakeservers and test-kueue run them.
with_clusters='faults|faults/behind|faults/crashes|faults/history/gap|faults/soak|faults/upgrade|benchmark/fakeservers|benchmark/e2e/beside'

# The packages of the suite concurrent. In most tests of the others one goroutine calls a reconciler that decides and writes.
# With the race detector all of the integration tests take half as much CPU time again: make test-race.
concurrent='remote|executionlease/.*|controllers/hub/placement(/.*)?|controllers/hub/garbagecollection'

# Prints the directories of packages that start goroutines, or have locks.
goroutines() {
  git ls-files --cached --others --exclude-standard -- '*.go' ':!*_test.go' |
    { xargs grep -lsE '^[[:space:]]*(go (func|[a-z])|"sync(/atomic)?"$)' || true; } | xargs -n 1 dirname | sort -u
}

# Prints "suite package" for each package of the main module with tests.
list() {
  local parallel
  parallel=$(goroutines)
  go list -test -f '{{.ImportPath}} {{join .Deps " "}}' ./... | awk -v module="$module" -v concurrent="^$module/($concurrent)\$" -v parallel="$parallel" '
    BEGIN { split(parallel, found, "\n"); for (i in found) runs[module "/" found[i]] = 1 }
    $1 !~ /\.test$/ { next }
    {
      package = substr($1, 1, length($1) - length(".test"))
      suite = package in runs ? "unit" : "sequential"
      for (i = 2; i <= NF; i++) if ($i == module "/test/clusters") suite = package ~ concurrent ? "concurrent" : "integration"
      if (index(package, module "/test/e2e-multicluster") == 1) suite = "e2e"
      if (index(package, module "/hack/") == 1 && (suite == "integration" || suite == "concurrent")) suite = "e2e"
      print suite, package
    }'
}

# Prints the other modules whose tests run here. hack/contract.sh runs those of test/contract, run_controlplane those of
# test/controlplane and hack/kindnode, make test-board and make test-trainers those of test/board and test/trainers.
harness_modules() { code_modules | grep -vxE '[.]|test/(board|contract|controlplane|trainers)|hack/kindnode'; }

# Prints "harness package" for each package of a module with tests.
list_harness() {
  go -C "$1" list -f '{{if or .TestGoFiles .XTestGoFiles}}harness {{.ImportPath}}{{end}}' ./... |
    grep -vxE "harness $module/test/($with_clusters)"
}

# The race detector takes cgo. Without a C compiler there is neither.
race() {
  if [[ ${RACE:-1} != 0 && $(CGO_ENABLED='' go env CGO_ENABLED) == 1 ]]; then
    echo -race
  fi
}

# A test has up to a dozen processes at work. With more than one thread each, a third of their CPU time goes into looking
# for work and into waking each other up. They live for minutes, so less garbage collection costs little memory.
save_cpu() { export GOMAXPROCS=1 GOGC=400; }

# Some packages at a time: each starts API servers, and waits for them more than it computes.
on_clusters=(-p "${PACKAGES:-3}" -timeout "${TIMEOUT:-20m}")

run() {
  local suite=$1 format=$2 all packages
  shift 2
  mkdir -p "$output"
  rm -f "$output/$suite.json"
  all=$(list) || return # Not in the next line, which would go on with half a list after an error.
  mapfile -t packages < <(awk -v suite="$suite" '$1 == suite { print $2 }' <<<"$all")
  [[ " $* " != *" -race "* ]] || local -x CGO_ENABLED=1
  if ((${#packages[@]} == 0)); then
    echo "No package has $suite tests."
    return
  fi
  hack/gotestsum.sh --format "$format" --format-hide-empty-pkg \
    --jsonfile "$output/$suite.json" -- "${flags[@]}" "$@" "${packages[@]}"
}

# The control plane is a Go module of its own.
run_controlplane() {
  if compgen -G 'test/controlplane/*_test.go' >/dev/null; then
    go -C test/controlplane test -vet=off ./...
  fi
  # The other packages of hack/kindnode are programs of others, without tests.
  go -C hack/kindnode test -vet=off ./podnet
}

run_harness() {
  local root=$PWD directory all packages flags_here code=0
  mkdir -p "$output"
  rm -f "$output"/harness-*.json
  for directory in $(harness_modules); do
    all=$(list_harness "$directory")
    mapfile -t packages < <(awk '{ print $2 }' <<<"$all")
    flags_here=("${flags[@]}")
    [[ " $* " != *" -race "* ]] || local -x CGO_ENABLED=1
    [[ $directory == test/simulation ]] || flags_here+=(-count=1) # The others read files of other modules, too.
    (cd "$directory" && "$root/hack/gotestsum.sh" --format pkgname --format-hide-empty-pkg \
      --jsonfile "$root/$output/harness-$(basename "$directory").json" -- "${flags_here[@]}" "$@" "${packages[@]}") || code=1
  done
  return "$code"
}

count() { cat "$output"/*.json 2>/dev/null | grep -cE "\"Action\":\"$1\".*\"(Test|FailedBuild)\":" || true; }

suite=${1:-}
shift || true
case $suite in
unit)
  # shellcheck disable=SC2046 # no word is wanted where race prints none
  run unit pkgname $(race) -timeout "${TIMEOUT:-10m}" "$@"
  run sequential pkgname -timeout "${TIMEOUT:-10m}" "$@"
  ;;
harness)
  # shellcheck disable=SC2046
  run_harness $(race) -timeout "${TIMEOUT:-10m}" "$@"
  ;;
concurrent)
  save_cpu
  # shellcheck disable=SC2046
  run concurrent testname $(race) "${on_clusters[@]}" "$@"
  ;;
integration)
  save_cpu
  code=0
  # shellcheck disable=SC2046
  run integration testname $([[ ${RACE:-} != all ]] || race) "${on_clusters[@]}" "$@" || code=1
  run_controlplane || code=1
  exit "$code"
  ;;
e2e)
  save_cpu
  # Each package has a hub and up to three workers.
  run e2e testname -p "${PACKAGES:-2}" -timeout "${TIMEOUT:-30m}" "$@"
  ;;
list)
  list
  for directory in $(harness_modules); do list_harness "$directory"; done
  ;;
summary) echo "tests: $(count pass) passed, $(count fail) failed, $(count skip) skipped" ;;
*)
  sed -n '6,8s/^# *//p' "${BASH_SOURCE[0]}" >&2
  exit 2
  ;;
esac
