// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/internal/process"
	"github.com/trainyard/trainyard/cmd/internal/webhookserver"
	"github.com/trainyard/trainyard/controllers/hub/failover"
	"github.com/trainyard/trainyard/controllers/hub/nomination"
	"github.com/trainyard/trainyard/controllers/hub/placement/kueue"
	"github.com/trainyard/trainyard/dispatch/accelerators"
	hublease "github.com/trainyard/trainyard/executionlease/hub"
	"github.com/trainyard/trainyard/gateway"
	"github.com/trainyard/trainyard/remote"
)

const (
	leaseName        = "manager.trainyard.dev"
	defaultNamespace = "trainyard-system"
)

// options are the options of the manager. defaultOptions returns valid ones.
type options struct {
	process.Options
	managedBy           string
	namespace           string
	protectedNamespaces []string
	// unprotectedNamespaces are exceptions from platformNamespaces.
	unprotectedNamespaces []string
	namespaceLabels       []string
	unsentLabels          []string
	workerQPS             float32
	workerBurst           int
	workerConcurrency     int
	workerTimeout         time.Duration
	workerProbeInterval   time.Duration
	fenceMargin           time.Duration
	failoverPauseAt       float64
	failoverPauseWindow   time.Duration
	deletionGrace         time.Duration
	// accelerators are rows of an accelerators.Table. validate parses them into table.
	accelerators        []string
	table               accelerators.Table
	kueueDispatcher     bool
	kueueAdmissionCheck bool
	lookup              bool
	dependencies        bool
	clusterProfiles     clusterProfileOptions
	archive             archiveOptions
	logArchive          logArchiveOptions
	webhooks            webhookserver.Options
	gateway             gatewayOptions
}

func defaultOptions() options {
	namespace := defaultNamespace
	if pod := os.Getenv("POD_NAMESPACE"); pod != "" {
		namespace = pod
	}
	return options{
		Options:             process.DefaultOptions(leaseName, namespace),
		managedBy:           v1alpha1.ManagedByMultiKueue,
		namespace:           namespace,
		workerQPS:           200,
		workerBurst:         400,
		workerConcurrency:   8,
		workerTimeout:       10 * time.Second,
		workerProbeInterval: 10 * time.Second,
		fenceMargin:         hublease.DefaultMargin,
		failoverPauseAt:     failover.DefaultPauseAt,
		failoverPauseWindow: failover.DefaultPauseWindow,
		deletionGrace:       failover.DefaultDeletionGrace,
		webhooks:            webhookserver.Options{Configuration: webhookConfiguration, Address: ":9443"},
		gateway:             gatewayOptions{address: "0", timeout: gateway.DefaultAnswerTimeout},
		logArchive:          logArchiveOptions{size: "1Mi"},
	}
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	o.AddFlags(fs)
	fs.StringVar(&o.managedBy, "managed-by", o.managedBy,
		"Value of spec.managedBy of the TrainJobs to dispatch. Upstream's CRD admits only the default beside the built-in "+
			"value; with the CRD of config/crd/trainjob-any-manager "+v1alpha1.ManagedByDispatcher+" works too.")
	fs.StringVar(&o.namespace, "namespace", o.namespace,
		"Namespace of the Secrets with the workers' kubeconfigs. The default is the environment variable POD_NAMESPACE.")
	fs.StringSliceVar(&o.protectedNamespaces, "protected-namespaces", o.protectedNamespaces,
		"Namespaces whose TrainJobs are not dispatched, besides --namespace and "+strings.Join(platformNamespaces, ", ")+
			". A name that ends in * stands for all names that begin so.")
	fs.StringSliceVar(&o.unprotectedNamespaces, "unprotected-namespaces", o.unprotectedNamespaces,
		"Namespaces whose TrainJobs are dispatched though their names are among "+strings.Join(platformNamespaces, ", ")+
			". On each worker they need the label trainyard.dev/protected: \"false\".")
	fs.StringSliceVar(&o.namespaceLabels, "namespace-labels", o.namespaceLabels,
		"Keys of labels that a namespace which is made on a worker gets from the hub's, besides "+podSecurityLabels+
			". A key that ends in * stands for all keys that begin so.")
	fs.StringSliceVar(&o.unsentLabels, "unsent-labels", o.unsentLabels,
		"Keys of labels and annotations of the hub's objects that do not come to workers with copies, runtimes and "+
			"namespaces, besides those by which known tools track what they have applied. A key that ends in * stands for all "+
			"keys that begin so.")
	fs.Float32Var(&o.workerQPS, "worker-api-qps", o.workerQPS, "Requests per second to one worker's API server, on "+
		"average; negative for no limit.")
	fs.IntVar(&o.workerBurst, "worker-api-burst", o.workerBurst, "Requests to one worker that may exceed the average "+
		"for a moment.")
	fs.IntVar(&o.workerConcurrency, "worker-concurrency", o.workerConcurrency, "Jobs of one worker that are worked on "+
		"at the same time.")
	fs.DurationVar(&o.workerTimeout, "worker-timeout", o.workerTimeout, "How long a read from a worker, or a "+
		"request for an execution lease there, may take. Creations have 65 s, other changes 35 s.")
	fs.DurationVar(&o.workerProbeInterval, "worker-probe-interval", o.workerProbeInterval, "How often to see whether a "+
		"worker answers.")
	fs.DurationVar(&o.fenceMargin, "fence-margin", o.fenceMargin,
		"How long to wait, besides a worker's fenceAfter, until its agent must have stopped the jobs with failover "+
			"Fenced. It covers changes of leader of agents and managers.")
	fs.Float64Var(&o.failoverPauseAt, "failover-pause-at", o.failoverPauseAt,
		"If more than this share of the workers is lost at about the same time, the hub itself may be cut off, and no job "+
			"is moved. 1: never pause.")
	fs.DurationVar(&o.failoverPauseWindow, "failover-pause-window", o.failoverPauseWindow, "Losses of workers within "+
		"this time count as at about the same time.")
	fs.DurationVar(&o.deletionGrace, "deletion-grace", o.deletionGrace,
		"How long the deletion of a job waits for a worker that does not answer. Then a Tombstone remembers what is left "+
			"to delete there.")
	fs.StringSliceVar(&o.accelerators, "accelerators", o.accelerators,
		"Extended resources that are accelerators, besides those that docs/install.md lists, as RESOURCE=UNIT or "+
			"RESOURCE=UNIT:LABEL: the unit is Device, Share, Memory or Percent, and the label of nodes names the product, such as "+
			"example.com/npu=Device:example.com/npu.model. In a RESOURCE, * stands for any text. These come before the known ones.")
	fs.BoolVar(&o.kueueDispatcher, "kueue-dispatcher", o.kueueDispatcher,
		"Say which worker the hub's MultiKueue gives each of its jobs to, of all kinds. It takes Kueue on the hub with "+
			"multiKueue.dispatcherName: "+nomination.DispatcherName+", and the rights of config/kueue-dispatcher.")
	fs.BoolVar(&o.kueueAdmissionCheck, "kueue-admission-check", o.kueueAdmissionCheck,
		"Decide about the jobs with quota of the hub's Kueue whose ClusterQueue has an AdmissionCheck with controllerName: "+
			kueue.CheckController+". It takes Kueue on the hub, and the rights of config/kueue-admission-check.")
	fs.BoolVar(&o.lookup, "lookup", o.lookup,
		"Look on workers for the Secrets, ConfigMaps, claims, accounts and classes that the pods of a job name, before a copy "+
			"is sent. It takes the rights of config/worker-lookup on the worker. The worker's agent looks without that.")
	fs.BoolVar(&o.dependencies, "dependencies", o.dependencies,
		"Bring Secrets, ConfigMaps and ServiceAccounts with the label "+v1alpha1.LabelPropagate+": \""+v1alpha1.PropagateYes+
			"\" to the workers of jobs that name them, as far as spec.propagate.dependencies of their DispatchPolicy says. It takes the "+
			"rights of config/dependencies on the hub, and those of config/worker-dependencies on the workers.")
	o.clusterProfiles.addFlags(fs)
	o.archive.addFlags(fs)
	o.logArchive.addFlags(fs)
	o.webhooks.AddFlags(fs, webhookWords)
	o.gateway.addFlags(fs)
}

// rights are the rights on workers that the manager can do without, and of which admins learn if they are missing.
func (o *options) rights() (rights []remote.Right) {
	if o.gateway.enabled() {
		rights = append(rights, remote.ReadLogs)
	}
	if o.lookup {
		rights = append(rights, remote.LookUp)
	}
	return rights
}

// validate returns all faults at once.
func (o *options) validate() error {
	var faults *multierror.Error
	fault := func(format string, args ...any) { faults = multierror.Append(faults, fmt.Errorf(format, args...)) }
	if err := o.Validate(); err != nil {
		faults = multierror.Append(faults, err)
	}
	if messages := validation.IsQualifiedName(o.managedBy); len(messages) > 0 {
		fault("--managed-by is %q: %s", o.managedBy, messages[0])
	}
	if o.managedBy == v1alpha1.ManagedByBuiltIn {
		fault("--managed-by is %q: this is the value of the cluster's own TrainJob controller", o.managedBy)
	}
	if messages := validation.IsDNS1123Label(o.namespace); len(messages) > 0 {
		fault("--namespace is %q: %s", o.namespace, messages[0])
	}
	for _, err := range []error{o.validateNamespaces(), o.parseAccelerators(), o.clusterProfiles.validate(), o.archive.validate(), o.logArchive.validate()} {
		if err != nil {
			faults = multierror.Append(faults, err)
		}
	}
	faults = multierror.Append(faults, o.webhooks.Validate()...)
	faults = multierror.Append(faults, o.gateway.validate()...)
	if o.workerQPS == 0 {
		fault("--worker-api-qps is 0: must be positive, or negative for no limit")
	}
	if o.workerBurst <= 0 {
		fault("--worker-api-burst is %d: must be positive", o.workerBurst)
	}
	if o.workerConcurrency <= 0 {
		fault("--worker-concurrency is %d: must be positive", o.workerConcurrency)
	}
	if o.workerTimeout <= 0 {
		fault("--worker-timeout is %s: must be positive", o.workerTimeout)
	}
	if o.workerProbeInterval <= 0 {
		fault("--worker-probe-interval is %s: must be positive", o.workerProbeInterval)
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{
		{"fence-margin", o.fenceMargin}, {"failover-pause-window", o.failoverPauseWindow}, {"deletion-grace",
			o.deletionGrace},
	} {
		if d.value <= 0 {
			fault("--%s is %s: must be positive", d.flag, d.value)
		}
	}
	if o.failoverPauseAt <= 0 || o.failoverPauseAt > 1 {
		fault("--failover-pause-at is %g: must be more than 0 and at most 1", o.failoverPauseAt)
	}
	return faults.ErrorOrNil()
}

func (o *options) parseAccelerators() (err error) {
	if o.table, err = accelerators.Parse(o.accelerators); err != nil {
		return fmt.Errorf("--accelerators: %w", err)
	}
	return nil
}
