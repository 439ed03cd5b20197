// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/trainyard/trainyard/views/trace"
)

// TestRatio checks that of many UIDs the share is sampled that was asked for. The sampler of the SDK takes none of them.
func TestRatio(t *testing.T) {
	const jobs, share = 10000, 0.1
	sampled, bySDK := 0, 0
	for range jobs {
		p := sdk.SamplingParameters{TraceID: api.TraceID(trace.IDOf(uuid.NewUUID()))}
		if ratio(share).ShouldSample(p).Decision == sdk.RecordAndSample {
			sampled++
		}
		if sdk.TraceIDRatioBased(share).ShouldSample(p).Decision == sdk.RecordAndSample {
			bySDK++
		}
	}
	if sampled < 850 || sampled > 1150 { // Five standard deviations of 30.
		t.Errorf("%d of %d jobs are sampled, want a tenth", sampled, jobs)
	}
	if bySDK != 0 {
		t.Errorf("the SDK's sampler takes %d UIDs: package traces may not need its own any more", bySDK)
	}
	for share, want := range map[ratio]sdk.SamplingDecision{0: sdk.Drop, 1: sdk.RecordAndSample} {
		for range 100 {
			p := sdk.SamplingParameters{TraceID: api.TraceID(trace.IDOf(uuid.NewUUID()))}
			if got := share.ShouldSample(p).Decision; got != want {
				t.Fatalf("%g of the jobs: the decision is %v", float64(share), got)
			}
		}
	}
}
