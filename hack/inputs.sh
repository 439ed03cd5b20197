#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0

# Prints a checksum of files, and of all files in folders:
#
#   hack/inputs.sh PATH...
#
# go test sees that a file which a test opens has changed only if the file is in the test's own module. For tests of other
# modules the scripts of hack/ set TRAINYARD_INPUTS to the checksum of what is outside.

set -euo pipefail
files=$(find -L "$@" -type f | sort)
printf '%s\n' "$files" "$(git hash-object --stdin-paths <<<"$files")" | git hash-object --stdin
