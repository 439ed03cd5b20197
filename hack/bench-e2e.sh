#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0

# Measures Trainyard beside Kueue's MultiKueue and beside the least that any dispatcher must do: docs/benchmarks.md.
#
#   hack/bench-e2e.sh [flags]   # as $BENCH says:
#     smoke    seconds: only the requests per job, which are checked
#     quick    minutes: 2 workers without distance
#     long     hours: 2, 3 and 10 workers, 0, 20 and 100 ms, 50,000 finished jobs, and a million jobs a day for 15 minutes
#     expiry   an hour: finished jobs that are archived and deleted; --rate, --rate-for and --ttl change it
#     other    half an hour: the tables of docs/benchmarks.md but for what only long measures
#
# With --baseline COMMIT it measures the present tree against that commit, and no other system: a burst and one job at a
# time, or what flags say; with BENCH=smoke a burst of 20 jobs. --pairs, --replicas and --agents are for that, too.
#
# It takes the binaries of make build and make controlplane, and builds Kueue. The results are added to those in $BENCH_OUT
# (default: _output/bench). Flags win: see go -C test/benchmark/e2e run . --help.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=${BENCH_OUT:-$PWD/_output/bench}
mkdir -p "$out"
program=$out/bench
GOWORK=off go -C test/benchmark/e2e build -o "$program" .
failed=0

bench() { (cd test/benchmark/e2e && "$program" "$@"); }

# One system that cannot be measured does not keep the others from it.
measure() { bench --out "$out" "$@" || failed=1; }

# The fake workers have a hub of their own. A fleet is started besides, and the floor's is up soonest. The numbers count
# only if the fake workers answer as a real API server does.
many() {
  go -C test/benchmark test ./fakeservers -count=1 || failed=1
  measure --scenario many --systems floor "$@"
}

if [[ " $* " == *" --baseline"[\ =]* ]]; then
  case ${BENCH:-} in
  smoke) bench --smoke --out "$out" "$@" ;;
  long | expiry)
    echo "error: BENCH=$BENCH measures what --baseline cannot: leave out BENCH, and say with --workers, --rtt and --scenario what to measure" >&2
    exit 1
    ;;
  *) bench --out "$out" "$@" ;;
  esac
  echo "The results are in $out/baseline"
  exit
fi

case ${BENCH:-} in
expiry)
  measure --scenario expiry --systems= --rate 40 --rate-for 1h --patience 24h "$@"
  ;;
smoke)
  bench --smoke "$@"
  exit
  ;;
quick)
  hack/build-kueue.sh
  measure --scenario burst,idle "$@"
  ;;
long)
  hack/build-kueue.sh
  measure --systems trainyard --scenario rate "$@"
  measure --scenario burst,idle --multikueue-jobs 300 "$@"
  fleets=(--scenario burst,idle --workers 2,3,10 --rtt 0,20ms,100ms)
  measure "${fleets[@]}" --multikueue-jobs 60 --systems multikueue-tuned,multikueue "$@"
  measure "${fleets[@]}" --systems floor,trainyard "$@"
  measure --scenario finished,live --finished 1000,10000,50000 --systems trainyard "$@"
  measure --scenario finished,live --finished 1000 --multikueue-jobs 60 --systems multikueue,multikueue-tuned "$@"
  many "$@"
  ;;
*)
  hack/build-kueue.sh
  measure --scenario burst,idle --multikueue-jobs 300 "$@"
  measure --scenario burst,idle --workers 10 --rtt 0,100ms --jobs 600 --idle-jobs 20 --systems floor,trainyard "$@"
  measure --scenario burst,idle --workers 10 --rtt 100ms --multikueue-jobs 60 --idle-jobs 10 --systems multikueue-tuned "$@"
  measure --scenario burst --garbage-collector --systems floor,trainyard "$@"
  measure --scenario burst --garbage-collector --workers 10 --jobs 600 --systems floor,trainyard "$@"
  measure --scenario finished,live --finished 1000,10000 --systems trainyard "$@"
  many "$@"
  ;;
esac
echo "The results are in $out"
exit "$failed"
