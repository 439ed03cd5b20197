#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0

# Explores test/model/fencing.pml with spin: the rules as they are must hold, and without any one of them the promise must break.
# MODEL=large explores more challenges and crashes, and takes minutes and gigabytes.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
for tool in spin gcc; do
  command -v "$tool" >/dev/null || { echo "error: $tool is missing (Debian: apt-get install spin gcc)" >&2; exit 1; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# Explores the model with switches; prints pan's words and returns 0 if the promise holds.
explore() {
  rm -f pan* ./*.trail
  spin -a "$@" "$root/test/model/fencing.pml" >/dev/null
  gcc -O2 -w -DSAFETY -DCOLLAPSE -DMEMLIM=12000 -o pan pan.c
  ./pan -m20000 -n >out
  ! grep -q 'search depth too small\|Search not completed\|out of memory' out || { grep -q 'assertion violated' out || { cat out; exit 2; }; }
  ! grep -q 'assertion violated' out
}

# Explores the model as it is.
holds() {
  explore "$@" || { cat out; spin -t -p "$@" "$root/test/model/fencing.pml" | tail -100; exit 1; }
  echo "the promise holds with $*: $(awk '/states, stored/ {print $1}' out) states, $(awk '/transitions/ {print $1}' out) transitions"
}

if [[ ${MODEL:-} == large ]]; then
  holds -DCRASHES=2 -DCHALLENGES=4
  holds -DCRASHES=1 -DTWICE
  holds -DCRASHES=1 -DKUEUE
else
  holds -DCRASHES=1
  holds -DCRASHES=0 -DTWICE
  holds -DCRASHES=0 -DKUEUE
fi

for switch in NO_STAMP NO_MEMORY NEWER_IS_CURRENT COUNT_FROM_SUCCESS COUNT_FROM_RECEIPT WAIT=5 ENDLESS_HANDOVER KUEUE_UNDOES; do
  case $switch in
    NO_MEMORY | NEWER_IS_CURRENT) bounds=(-DCRASHES=0 -DTWICE) ;;
    ENDLESS_HANDOVER) bounds=(-DCRASHES=2) ;;
    KUEUE_UNDOES) bounds=(-DCRASHES=0 -DKUEUE) ;;
    *) bounds=(-DCRASHES=1) ;;
  esac
  if explore "${bounds[@]}" "-D$switch"; then
    echo "error: the model holds with $switch too, so it proves nothing about that rule" >&2
    exit 1
  fi
  echo "broken with $switch, as it should be: $(grep -o 'assertion violated.*' out | head -1)"
done
