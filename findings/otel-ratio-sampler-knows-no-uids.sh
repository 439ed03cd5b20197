#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# OpenTelemetry's SDK for Go (go.opentelemetry.io/otel/sdk v1.44.0): with UIDs as the IDs of traces, the ratio sampler takes
# all or nothing.
#
# TraceIDRatioBased compares bytes 8 to 15 of the ID, without the last bit, with the ratio. In a UUID of version 4 the first
# two bits of byte 8 are always 10, so the compared number is between 0.5 and 0.75 of all numbers. A ratio of 0.5 samples
# no trace, and 0.75 samples each. Level 2 of W3C's Trace Context asks for random bits in the last seven bytes only, and
# such a UUID has them.
#
# Trainyard takes the UID of a TrainJob as the ID of its trace, and internal/traces has a sampler for it.
set -euo pipefail

folder=$(mktemp -d)
trap 'chmod -R u+w "$folder" && rm -rf "$folder"' EXIT
cd "$folder"
cat >want <<'EOF'
0.1: 0 of 10000
0.5: 0 of 10000
0.75: 10000 of 10000
EOF
cat >main.go <<'EOF'
package main

import (
	"fmt"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"
)

func main() {
	for _, ratio := range []float64{0.1, 0.5, 0.75} {
		sampler, sampled := trace.TraceIDRatioBased(ratio), 0
		for range 10000 {
			if sampler.ShouldSample(trace.SamplingParameters{TraceID: api.TraceID(uuid.New())}).Decision == trace.RecordAndSample {
				sampled++
			}
		}
		fmt.Printf("%g: %d of 10000\n", ratio, sampled)
	}
}
EOF
export GOFLAGS=-mod=mod GOWORK=off CGO_ENABLED=0
go mod init example.com/finding 2>/dev/null
go get go.opentelemetry.io/otel/sdk@v1.44.0 github.com/google/uuid@v1.6.0 2>/dev/null
go run . >got
if ! diff want got; then
  echo "this has changed: read the comment of this file again" >&2
  exit 1
fi
cat got
