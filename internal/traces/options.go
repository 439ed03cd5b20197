// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// Variables of OpenTelemetry's specification that are read here. The libraries read the others, such as headers,
// certificates, timeouts, limits of the queue and attributes of the resource.
const (
	disabledVariable = "OTEL_SDK_DISABLED"
	exporterVariable = "OTEL_TRACES_EXPORTER"
	endpointVariable = "OTEL_EXPORTER_OTLP_ENDPOINT"
	protocolVariable = "OTEL_EXPORTER_OTLP_PROTOCOL"
	samplerVariable  = "OTEL_TRACES_SAMPLER"
	ratioVariable    = "OTEL_TRACES_SAMPLER_ARG"
	queueVariable    = "OTEL_BSP_MAX_QUEUE_SIZE"
)

// queueSize is how many spans wait for the collector at most, unless the environment says so. A new leader exports the
// spans of some minutes at once, and the SDK's 2048 would drop most of a hub with a million jobs a day. A span takes about
// a kilobyte.
const queueSize = 16384

// ofTraces is the variable that is about traces only, and comes first.
func ofTraces(variable string) string {
	return strings.Replace(variable, "OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_TRACES_", 1)
}

// wanted says whether traces are to be exported: if there is an endpoint, or an exporter is named.
func wanted(getenv func(string) string) (bool, error) {
	if strings.EqualFold(getenv(disabledVariable), "true") {
		return false, nil
	}
	switch exporter := getenv(exporterVariable); exporter {
	case "":
		return getenv(endpointVariable) != "" || getenv(ofTraces(endpointVariable)) != "", nil
	case "none":
		return false, nil
	case "otlp":
		return true, nil
	default:
		return false, fmt.Errorf("the environment variable %s is %q: must be otlp or none", exporterVariable, exporter)
	}
}

// newClient returns the client of the protocol that the environment names. It connects when there is something to send.
func newClient(ctx context.Context, getenv func(string) string) (sdk.SpanExporter, error) {
	switch protocol := cmp.Or(getenv(ofTraces(protocolVariable)), getenv(protocolVariable), "http/protobuf"); protocol {
	case "http/protobuf":
		return otlptracehttp.New(ctx)
	case "grpc":
		return otlptracegrpc.New(ctx)
	default:
		return nil, fmt.Errorf("the environment variable %s is %q: must be grpc or http/protobuf", protocolVariable, protocol)
	}
}

// newSampler returns the sampler that the environment names. A parent-based one is as the one for roots: jobs have no
// parents.
func newSampler(getenv func(string) string) (sdk.Sampler, error) {
	switch name := strings.TrimPrefix(getenv(samplerVariable), "parentbased_"); name {
	case "", "always_on":
		return sdk.AlwaysSample(), nil
	case "always_off":
		return sdk.NeverSample(), nil
	case "traceidratio":
		text := cmp.Or(getenv(ratioVariable), "1")
		share, err := strconv.ParseFloat(text, 64)
		if err != nil || share < 0 || share > 1 {
			return nil, fmt.Errorf("the environment variable %s is %q: must be a number from 0 to 1", ratioVariable, text)
		}
		return ratio(share), nil
	default:
		return nil, fmt.Errorf("the environment variable %s is %q: must be always_on, always_off, traceidratio, or one of these after parentbased_",
			samplerVariable, name)
	}
}

// ratio is the share of the traces that are sampled, by the last seven bytes of their IDs. The SDK's own sampler compares
// the last eight. In the UID of an object, two bits of the first of these eight are always the same: the SDK's sampler
// takes no UID for a ratio of 0.5 or less, and each for 0.75 or more.
type ratio float64

// randomBits are the bits that count.
const randomBits = 56

// ShouldSample implements sdk.Sampler.
func (r ratio) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	var bits uint64
	for _, digit := range p.TraceID[16-randomBits/8:] {
		bits = bits<<8 | uint64(digit)
	}
	if float64(bits) < float64(r)*(1<<randomBits) {
		return sdk.SamplingResult{Decision: sdk.RecordAndSample}
	}
	return sdk.SamplingResult{Decision: sdk.Drop}
}

// Description implements sdk.Sampler.
func (r ratio) Description() string { return fmt.Sprintf("UIDRatio{%g}", float64(r)) }
