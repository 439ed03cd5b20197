// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/pflag"

	"github.com/trainyard/trainyard/cmd/internal/process"
)

const (
	// leaseName is the Kubeflow Trainer's (its manifests/base/manager/controller_manager_config.yaml), so that the two never work
	// at the same time. So is the default of its namespace.
	leaseName      = "trainer.kubeflow.org"
	leaseNamespace = "kubeflow-system"
)

// options of the agent. Those from defaultOptions are valid but for what only the cluster can tell.
type options struct {
	process.Options
	concurrency int
}

func defaultOptions() options {
	return options{Options: process.DefaultOptions(leaseName, leaseNamespace), concurrency: 10}
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	o.AddFlags(fs)
	fs.IntVar(&o.concurrency, "concurrency", o.concurrency, "TrainJobs that are worked on at the same time.")
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
	return faults.ErrorOrNil()
}
