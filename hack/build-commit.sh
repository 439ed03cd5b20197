#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0

# Builds the programs of another commit of this repository:
#
#   hack/build-commit.sh COMMIT SETTING
#
# It prints the directory that has the commit's files in source/ and its programs in programs/. SETTING is where the
# user has named the commit, such as UPGRADE_FROM. Errors name it.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=hack/flags.sh
source hack/flags.sh

if (($# != 2)); then
  sed -n '5,10s/^# *//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
name=$1 setting=$2

fail() {
  echo "error: $*" >&2
  exit 1
}

if ! commit=$(git rev-parse --verify --quiet --end-of-options "$name^{commit}"); then
  [[ $(git rev-parse --is-shallow-repository) == false ]] ||
    fail "$setting: commit \"$name\" is not in this shallow clone: run git fetch --unshallow, or give a commit that is there"
  fail "$setting: there is no commit \"$name\": give a commit of this repository, as git log --oneline shows them"
fi

# A clone that shares the objects, so that neither this work tree nor its list of work trees changes.
built=$PWD/_output/commits/$commit
if [[ ! -d $built/source ]]; then
  rm -rf "$built"
  git clone --quiet --shared --no-checkout "$(git rev-parse --path-format=absolute --git-common-dir)" "$built/checkout" >&2
  git -C "$built/checkout" checkout --quiet --detach "$commit" >&2
  mv "$built/checkout" "$built/source" # Only a complete one has this name.
fi
title=$(git -C "$built/source" log -1 --format='%h (%s)')
echo "building $title ..." >&2
mkdir -p "$built/programs"
# What a user's workspace says is not for this commit.
GOWORK=off go -C "$built/source" build -o "$built/programs/" ./cmd/... >&2 ||
  fail "$setting: commit $title does not build: give a commit whose ./cmd/... builds"
for program in manager worker-agent; do
  [[ -x $built/programs/$program ]] || fail "$setting: commit $title has no cmd/$program: give a later commit"
done
echo "$built"
