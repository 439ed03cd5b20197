// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/trainyard/trainyard/test/check"
)

// TestGatewayFlags: a fault of a flag of the gateway names the flag and what would be right.
func TestGatewayFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string // Empty: no fault.
	}{
		"Off":        {},
		"Service":    {args: []string{"--gateway-bind-address=:9444", "--gateway-service=system/gateway"}},
		"OwnURL":     {args: []string{"--gateway-bind-address=:9444", "--gateway-cert-dir=/certs", "--gateway-url=https://10.0.0.1:8443"}},
		"NoPort":     {args: []string{"--gateway-bind-address=gateway", "--gateway-cert-dir=/certs"}, want: "--gateway-bind-address"},
		"NoneOfBoth": {args: []string{"--gateway-bind-address=:9444"}, want: "give one of --gateway-cert-dir and --gateway-service"},
		"Both": {
			args: []string{"--gateway-bind-address=:9444", "--gateway-service=system/gateway", "--gateway-cert-dir=/certs"},
			want: "give one of --gateway-cert-dir and --gateway-service",
		},
		"NoNamespace": {args: []string{"--gateway-bind-address=:9444", "--gateway-service=gateway"}, want: `--gateway-service: "gateway" is not namespace/name`},
		"HTTP":        {args: []string{"--gateway-url=http://gateway.example.com"}, want: "--gateway-url is \"http://gateway.example.com\": give a URL such as https://"},
		"Query":       {args: []string{"--gateway-url=https://gateway.example.com?a=b"}, want: "--gateway-url"},
		"IPOfService": {
			args: []string{"--gateway-bind-address=:9444", "--gateway-service=system/gateway", "--gateway-url=https://10.0.0.1"},
			want: "none for IP addresses",
		},
		"TooQuick": {args: []string{"--gateway-worker-timeout=1ms"}, want: "--gateway-worker-timeout is 1ms: must be at least 100ms"},
	} {
		t.Run(name, func(t *testing.T) {
			o := defaultOptions().gateway
			flags := pflag.NewFlagSet("manager", pflag.ContinueOnError)
			o.addFlags(flags)
			check.Must(t, flags.Parse(tc.args))
			got := errors.Join(o.validate()...)
			if tc.want == "" && got != nil || tc.want != "" && (got == nil || !strings.Contains(got.Error(), tc.want)) {
				t.Errorf("the fault is %v, want %q", got, tc.want)
			}
		})
	}
}

// TestPublishedURL: without a URL, users get the name of the Service.
func TestPublishedURL(t *testing.T) {
	check.Equal(t, "https://gateway.system.svc", (&gatewayOptions{service: "system/gateway"}).published(), "URL of a Service")
	check.Equal(t, "https://gateway.example.com", (&gatewayOptions{service: "system/gateway", url: "https://gateway.example.com/"}).published(), "given URL")
	check.Equal(t, "", (&gatewayOptions{certDir: "/certs"}).published(), "URL of nothing")
}
