#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0

# Gives Go binaries a time of change that follows from what they are made of:
#
#   hack/stamp.sh FILE...
#
# go build sets the time of a binary even if it built the same again. For go test, a file that a test has opened is another
# input when its time is another, and all tests on clusters would run again.

set -euo pipefail
for file; do
  sum=$(go tool buildid "$file" | cksum | cut -d ' ' -f 1)
  TZ=UTC touch -t "$(printf '20%02d%02d%02d%02d%02d.%02d' $((sum % 20)) $((sum / 20 % 12 + 1)) $((sum / 240 % 28 + 1)) \
    $((sum / 6720 % 24)) $((sum / 161280 % 60)) $((sum / 9676800 % 60)))" "$file"
done
