// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hashicorp/go-multierror"

	"github.com/trainyard/trainyard/test/check"
)

func TestValidate(t *testing.T) {
	cases := map[string]struct {
		reason string
		args   []string
		faults []string
	}{
		"Defaults": {
			reason: "The defaults are valid.",
		},
		"ShortLease": {
			reason: "Tests and impatient admins can have a lease of seconds.",
			args: []string{
				"--leader-election-lease-duration=2s", "--leader-election-renew-deadline=1500ms", "--leader-election-retry-period=200ms",
			},
		},
		"NoListeners": {
			reason: "0 means no endpoint.",
			args:   []string{"--health-probe-bind-address=0", "--metrics-bind-address=0", "--webhook-bind-address=0"},
		},
		"LeaseDoesNotMatterWithoutElection": {
			reason: "What is not used is not checked.",
			args:   []string{"--leader-elect=false", "--leader-election-namespace=", "--leader-election-lease-duration=0"},
		},
		"GivenCertificates": {
			reason: "Somebody else makes certificates.",
			args:   []string{"--webhook-bind-address=127.0.0.1:9000", "--webhook-cert-dir=/certs"},
		},
		"OwnCertificates": {
			reason: "The agent makes certificates for a Service.",
			args:   []string{"--webhook-service=system/agent"},
		},
		"WebhookPort": {
			reason: "The webhook server takes a number, and 0 is not any port.",
			args:   []string{"--webhook-bind-address=:0"},
			faults: []string{`--webhook-bind-address: port "0" is not a number from 1 to 65535`},
		},
		"EverythingWrong": {
			reason: "All faults come at once.",
			args: []string{
				"--kube-api-qps=0", "--kube-api-burst=-1", "--concurrency=0",
				"--health-probe-bind-address=8081", "--metrics-bind-address=localhost", "--pprof-bind-address=6060",
				"--leader-election-namespace=", "--leader-election-lease-duration=10s", "--leader-election-retry-period=9s",
				"--log-format=xml", "-v=-1",
				"--webhook-bind-address=9443", "--webhook-cert-dir=/certs", "--webhook-service=agent",
			},
			faults: []string{
				"--kube-api-qps is 0: must be positive",
				"--kube-api-burst is -1: must be positive",
				`--health-probe-bind-address: "8081" is not host:port: address 8081: missing port in address`,
				`--metrics-bind-address: "localhost" is not host:port: address localhost: missing port in address`,
				`--pprof-bind-address: "6060" is not host:port: address 6060: missing port in address`,
				"--leader-election-namespace is empty: the lease needs one",
				"--leader-election-lease-duration is 10s: must be longer than the renew deadline, 10s",
				"--leader-election-retry-period is 9s: must be positive, and 1.2 times it shorter than the renew deadline, 10s",
				`--log-format is "xml": must be text or json`,
				"--v is -1: must not be negative",
				"--concurrency is 0: must be positive",
				`--webhook-bind-address: "9443" is not host:port: address 9443: missing port in address`,
				"--webhook-cert-dir and --webhook-service: use only one of them",
				`--webhook-service: "agent" is not namespace/name`,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := defaultOptions()
			cmd := newCommand()
			cmd.ResetFlags()
			o.addFlags(cmd.Flags())
			check.Must(t, cmd.ParseFlags(tc.args))
			err := o.validate()
			var faults []string
			var multi *multierror.Error
			if errors.As(err, &multi) {
				for _, e := range multi.Errors {
					faults = append(faults, e.Error())
				}
			}
			check.Diff(t, tc.faults, faults, fmt.Sprintf("%s\nfaults", tc.reason))
		})
	}
}

// TestLeaseIsTheTrainers checks the lease. With another lease, agent and Trainer would work at the same time.
func TestLeaseIsTheTrainers(t *testing.T) {
	trainer := trainerLeaderElection(t)
	o := defaultOptions()
	ours := map[string]any{
		"leaderElect": o.LeaderElect, "resourceName": leaseName, "resourceNamespace": "",
		"leaseDuration": o.LeaseDuration.String(), "renewDeadline": o.RenewDeadline.String(), "retryPeriod": o.RetryPeriod.String(),
	}
	check.Diff(t, trainer, ours, "leader election (-Trainer's +ours)")
	if o.LeaseNamespace != "kubeflow-system" { // The Trainer uses the namespace of its pod.
		t.Errorf("namespace: got %q", o.LeaseNamespace)
	}
}
