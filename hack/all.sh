#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs every suite of tests, in rows side by side, and reports what each took:
#
#   hack/all.sh [verify] [bench-smoke] [test-fit]     # with these steps, too
#
# Tests whose inputs have not changed since they passed are not run again: Go's cache has their results ("go clean -testcache"
# empties it). Tests on clusters wait for half of their time, so four rows keep two cores busy. ROWS=1 runs one row after the
# other, for machines with less than 16 GB of memory. A step that fails does not keep the others from running, so that one run
# tells all. The report and the output of each row are in _output/test.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
also=" $* "
rm -rf _output/test # What hack/test.sh summary adds up.
mkdir -p _output/test

# Sets cpu to the seconds of CPU time that all steps have used so far, with their child processes. It uses a file, because
# a subshell would count its own children.
read_cpu() {
  local file=_output/test/times-$BASHPID
  times >"$file"
  cpu=$(awk -F '[ms ]+' 'NR == 2 { printf "%d", ($1 + $3) * 60 + $2 + $4 }' "$file")
}

clock() { printf '%dm%02ds' $(($1 / 60)) $(($1 % 60)); }

# Steps that run only if asked for.
optional=' verify bench-smoke test-fit '

# Runs steps, one after the other, and adds a line for each to the report.
run() {
  local step start before result line
  for step in "$@"; do
    [[ $optional != *" $step "* || $also == *" $step "* ]] || continue
    printf '\n=== %s\n' "$step"
    start=$SECONDS
    read_cpu
    before=$cpu
    result=ok
    make "${built[@]}" "$step" </dev/null || result=FAILED
    read_cpu
    line=$(printf '%-17s %-6s %6s, CPU %6s' "$step" "$result" "$(clock $((SECONDS - start)))" "$(clock $((cpu - before)))")
    printf '=== %s\n' "$line"
    printf '    %s\n' "$line" >>_output/test/report
  done
}

# Starts a row of steps in the background. Its output comes at the end.
rows=()
lost=0 # A row that ends by itself leaves steps out of the report.
row() {
  run "${@:2}" &>"_output/test/$1.log" &
  rows+=("$!:$1")
  [[ ${ROWS:-} != 1 ]] || wait "$!" || lost=1
}

built=()
run build controlplane helm
built=(-o build -o controlplane -o helm) # Two steps at the same time must not build them again.
# The three rows on clusters take about the same time. The tests without clusters use what is left.
PACKAGES=1 row e2e test-e2e bench-smoke test-contract
PACKAGES=1 row concurrent test-concurrent test-soak test-fit
row unit verify test-unit test-harness
PACKAGES=2 run test-integration
for each in "${rows[@]}"; do
  [[ ${ROWS:-} == 1 ]] || wait "${each%%:*}" || lost=1
  cat "_output/test/${each#*:}.log"
done

read_cpu
printf '\n=== all steps, %s, CPU %s\n' "$(clock $SECONDS)" "$(clock "$cpu")"
cat _output/test/report
hack/test.sh summary
failed=$(awk '$2 == "FAILED" { print $1 }' _output/test/report | paste -sd ' ')
if [[ -n $failed || $lost == 1 ]]; then
  echo "failed: ${failed:-steps that are not in the report}" >&2
  exit 1
fi
