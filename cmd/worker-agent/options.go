// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/pflag"

	"github.com/trainyard/trainyard/cmd/internal/process"
	"github.com/trainyard/trainyard/cmd/internal/webhookserver"
	workerlease "github.com/trainyard/trainyard/executionlease/worker"
	"github.com/trainyard/trainyard/internal/health"
)

const (
	// leaseName is the Kubeflow Trainer's (its manifests/base/manager/controller_manager_config.yaml), so that the Trainer
	// and the agent never work at the same time. leaseNamespace is the Trainer's default.
	leaseName      = "trainer.kubeflow.org"
	leaseNamespace = "kubeflow-system"
)

// options are the options of the agent. The options from defaultOptions are valid, except for what only the cluster
// knows.
type options struct {
	process.Options
	concurrency        int
	extendedConditions bool
	capacityReport     bool
	kueueQuota         bool
	fencing            bool
	health             health.Limits
	webhooks           webhookserver.Options
}

func defaultOptions() options {
	return options{
		Options:        process.DefaultOptions(leaseName, leaseNamespace),
		concurrency:    10,
		capacityReport: true,
		fencing:        true,
		health:         health.DefaultLimits(),
		webhooks:       webhookserver.Options{Configuration: webhookConfiguration, Address: ":9443"},
	}
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	o.AddFlags(fs)
	fs.IntVar(&o.concurrency, "concurrency", o.concurrency, "TrainJobs that are worked on at the same time.")
	fs.BoolVar(&o.extendedConditions, "extended-conditions", o.extendedConditions,
		"Give TrainJobs the conditions ResourcesCreated, Started and Stalled too. The Python SDK takes a job that has any "+
			"condition for not running.")
	fs.BoolVar(&o.capacityReport, "capacity-report", o.capacityReport,
		"Keep a CapacityReport of this cluster's nodes and pods, for a hub that reads that instead of them. Without its "+
			"CRD there is no report.")
	fs.BoolVar(&o.kueueQuota, "kueue-quota", o.kueueQuota,
		"Count the quota of this cluster's Kueue in the CapacityReport, for a hub that asks for it (spec.kueue.capacity). "+
			"It takes the rights of config/worker-agent-kueue.")
	fs.BoolVar(&o.fencing, "fencing", o.fencing,
		"Stop copies with failover Fenced when their hub is silent for too long, by one replica that holds the lease \""+workerlease.LeaseName+
			"\" in the same namespace. Without it, and without the CRD ExecutionLease, such copies do not start.")
	fs.DurationVar(&o.health.NoPodReady, "no-pod-ready-after", o.health.NoPodReady,
		"How long a job may be without a ready pod before an Event reports it. 0: no limit.")
	fs.DurationVar(&o.health.Unschedulable, "unschedulable-after", o.health.Unschedulable,
		"How long a pod may be without a node after the scheduler has found none, before an Event reports it. 0: no limit.")
	fs.DurationVar(&o.health.NoProgress, "no-progress-after", o.health.NoProgress,
		"How long a job that reports its progress may be silent, before an Event reports it. 0: no limit.")
	fs.Int32Var(&o.health.CrashLoops, "crash-loop-after", o.health.CrashLoops,
		"How often one place of a job may crash, before an Event reports a crash loop. 0: no limit.")
	o.webhooks.AddFlags(fs, webhookWords)
}

// validate returns all faults at once.
func (o *options) validate() error {
	var faults *multierror.Error
	if err := o.Validate(); err != nil {
		faults = multierror.Append(faults, err)
	}
	if o.concurrency <= 0 {
		faults = multierror.Append(faults, fmt.Errorf("--concurrency is %d: must be positive", o.concurrency))
	}
	faults = multierror.Append(faults, o.validateHealth()...)
	faults = multierror.Append(faults, o.webhooks.Validate()...)
	return faults.ErrorOrNil()
}

// validateHealth names limits by their flags.
func (o *options) validateHealth() (faults []error) {
	for flag, limit := range map[string]time.Duration{
		"no-pod-ready-after": o.health.NoPodReady, "unschedulable-after": o.health.Unschedulable, "no-progress-after": o.health.NoProgress,
	} {
		if limit < 0 {
			faults = append(faults, fmt.Errorf("--%s is %s: must not be negative", flag, limit))
		}
	}
	if o.health.CrashLoops < 0 {
		faults = append(faults, fmt.Errorf("--crash-loop-after is %d: must not be negative", o.health.CrashLoops))
	}
	return slices.SortedFunc(slices.Values(faults), func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
}
