// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Options are the options of a process. DefaultOptions makes them.
type Options struct {
	// Kubeconfig is the path of a file, or empty for the service account of the pod.
	Kubeconfig string
	// QPS and Burst limit requests to the API server.
	QPS   float32
	Burst int
	// HealthAddress and MetricsAddress are host:port, or "0" for none.
	HealthAddress  string
	MetricsAddress string
	// MetricsSecure serves metrics with TLS, to callers that the API server knows and that may get /metrics.
	MetricsSecure bool
	// MetricsCertDir has the certificate of the metrics, as tls.crt and tls.key. Empty: one is made at the start.
	MetricsCertDir string
	// PprofAddress is host:port, or "0" for none.
	PprofAddress string
	// LeaderElect says whether to elect a leader, with the lease LeaseName in LeaseNamespace and these durations.
	LeaderElect    bool
	LeaseName      string
	LeaseNamespace string
	LeaseDuration  time.Duration
	RenewDeadline  time.Duration
	RetryPeriod    time.Duration
	// LogFormat is LogText or LogJSON. LogVerbosity is 0 for changes, or 1 for decisions too.
	LogFormat    string
	LogVerbosity int

	tenure *Tenure
	// config is the last result of RestConfig, before its users have changed it.
	config *rest.Config
}

// DefaultOptions returns valid options. The durations are the defaults of client-go's leader election.
func DefaultOptions(leaseName, leaseNamespace string) Options {
	return Options{
		QPS:            500,
		Burst:          1000,
		HealthAddress:  ":8081",
		MetricsAddress: ":8443",
		MetricsSecure:  true,
		PprofAddress:   "0",
		LeaderElect:    true,
		LeaseName:      leaseName,
		LeaseNamespace: leaseNamespace,
		LeaseDuration:  15 * time.Second,
		RenewDeadline:  10 * time.Second,
		RetryPeriod:    2 * time.Second,
		LogFormat:      LogText,
	}
}

// AddFlags adds a flag for each option but LeaseName.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig,
		"Kubeconfig `file` of the cluster to work on. Without it, the service account of the pod that this runs in.")
	fs.Float32Var(&o.QPS, "kube-api-qps", o.QPS, "Requests per second to the API server, on average.")
	fs.IntVar(&o.Burst, "kube-api-burst", o.Burst, "Requests that may exceed the average for a moment.")
	fs.StringVar(&o.HealthAddress, "health-probe-bind-address", o.HealthAddress,
		"`host:port` of /healthz (the process runs) and /readyz (the cluster has the CRDs that it needs, and its caches are filled), or 0 for none.")
	fs.StringVar(&o.MetricsAddress, "metrics-bind-address", o.MetricsAddress,
		"`host:port` of the Prometheus metrics at /metrics, or 0 for none.")
	fs.BoolVar(&o.MetricsSecure, "metrics-secure", o.MetricsSecure, "Serve the metrics with TLS, and only to callers with a token "+
		"of this cluster that may get the path /metrics. Off: plain HTTP, for everybody who can reach the port.")
	fs.StringVar(&o.MetricsCertDir, "metrics-cert-dir", o.MetricsCertDir, "`directory` with the certificate of the metrics, "+
		"tls.crt and tls.key, which is read again when it changes. Without it, a self-signed certificate is made at the start.")
	fs.StringVar(&o.PprofAddress, "pprof-bind-address", o.PprofAddress,
		"`host:port` of Go's profiles at /debug/pprof/ (plain HTTP), or 0 for none. Without a host, only processes of this machine can reach them.")
	fs.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect,
		"Work only while holding the lease \""+o.LeaseName+"\". Turn it off only where nothing else can be running.")
	fs.StringVar(&o.LeaseNamespace, "leader-election-namespace", o.LeaseNamespace, "Namespace of the lease.")
	fs.DurationVar(&o.LeaseDuration, "leader-election-lease-duration", o.LeaseDuration,
		"How long other processes wait after the last renewal of the lease before they take it.")
	fs.DurationVar(&o.RenewDeadline, "leader-election-renew-deadline", o.RenewDeadline,
		"How long the leader goes on trying to renew the lease before it gives up and exits. Shorter than the lease duration.")
	fs.DurationVar(&o.RetryPeriod, "leader-election-retry-period", o.RetryPeriod,
		"How often to try to take or renew the lease. Shorter than the renew deadline.")
	fs.StringVar(&o.LogFormat, "log-format", o.LogFormat, "Format of the log on standard error: text or json.")
	fs.IntVarP(&o.LogVerbosity, "v", "v", o.LogVerbosity, "How much to log: 0 changes, 1 decisions too, 4 and more for "+
		"debugging.")
}

// Validate returns all faults at once. Each fault names its flag.
func (o *Options) Validate() error {
	var faults *multierror.Error
	fault := func(format string, args ...any) {
		faults = multierror.Append(faults, fmt.Errorf(format, args...))
	}
	if o.QPS <= 0 {
		fault("--kube-api-qps is %v: must be positive", o.QPS)
	}
	if o.Burst <= 0 {
		fault("--kube-api-burst is %d: must be positive", o.Burst)
	}
	if err := CheckAddress(o.HealthAddress); err != nil {
		fault("--health-probe-bind-address: %w", err)
	}
	if err := CheckAddress(o.MetricsAddress); err != nil {
		fault("--metrics-bind-address: %w", err)
	}
	if o.MetricsCertDir != "" && !o.MetricsSecure {
		fault("--metrics-cert-dir is %q: must be empty with --metrics-secure=false", o.MetricsCertDir)
	}
	if err := CheckAddress(o.PprofAddress); err != nil {
		fault("--pprof-bind-address: %w", err)
	}
	if o.LeaderElect {
		faults = multierror.Append(faults, o.validateLease()...)
	}
	if o.LogFormat != LogText && o.LogFormat != LogJSON {
		fault("--log-format is %q: must be %s or %s", o.LogFormat, LogText, LogJSON)
	}
	if o.LogVerbosity < 0 {
		fault("--v is %d: must not be negative", o.LogVerbosity)
	}
	return faults.ErrorOrNil()
}

func (o *Options) validateLease() (faults []error) {
	if o.LeaseNamespace == "" {
		faults = append(faults, fmt.Errorf("--leader-election-namespace is empty: the lease needs one"))
	}
	if o.LeaseDuration <= o.RenewDeadline {
		faults = append(faults, fmt.Errorf("--leader-election-lease-duration is %s: must be longer than the renew "+
			"deadline, %s",
			o.LeaseDuration, o.RenewDeadline))
	}
	// client-go multiplies the retry period by up to 1.2, and requires that one retry fits into the renew deadline.
	if o.RetryPeriod <= 0 || float64(o.RenewDeadline) <= 1.2*float64(o.RetryPeriod) {
		faults = append(faults, fmt.Errorf(
			"--leader-election-retry-period is %s: must be positive, and 1.2 times it shorter than the renew deadline, %s",
			o.RetryPeriod, o.RenewDeadline))
	}
	return faults
}

// CheckAddress accepts the addresses of net.Listen, and "0".
func CheckAddress(address string) error {
	if address == "0" {
		return nil
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("%q is not host:port: %w", address, err)
	}
	return nil
}

// localByDefault adds 127.0.0.1 to an address without a host, because profiles show what is in memory.
func localByDefault(address string) string {
	if host, port, err := net.SplitHostPort(address); err == nil && host == "" {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

// RestConfig returns the configuration for the cluster's API server.
func (o *Options) RestConfig(userAgent string) (*rest.Config, error) {
	var config *rest.Config
	var err error
	if o.Kubeconfig == "" {
		if config, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("load the pod's service account (outside a cluster, use --kubeconfig): %w", err)
		}
	} else if config, err = clientcmd.BuildConfigFromFlags("", o.Kubeconfig); err != nil {
		return nil, fmt.Errorf("load --kubeconfig %q: %w", o.Kubeconfig, err)
	}
	config.QPS, config.Burst = o.QPS, o.Burst
	config.UserAgent = userAgent
	o.config = rest.CopyConfig(config)
	return config, nil
}

// UnwrappedConfig returns a copy of the last result of RestConfig, before its users have changed it.
func (o *Options) UnwrappedConfig() *rest.Config { return rest.CopyConfig(o.config) }

// Apply copies these options to the options of a controller manager.
func (o *Options) Apply(to *ctrl.Options) {
	// With the priority queue of controller-runtime v0.24.1, stopping can take half a minute and end in an error
	// (https://github.com/kubernetes-sigs/controller-runtime/issues/3538). The next leader would wait for the lease.
	to.Controller.UsePriorityQueue = ptr.To(false)
	to.GracefulShutdownTimeout = ptr.To(stopTimeout)
	to.Metrics = o.metricsServer()
	to.HealthProbeBindAddress = o.HealthAddress
	to.PprofBindAddress = localByDefault(o.PprofAddress)
	to.LeaderElection = o.LeaderElect
	to.LeaderElectionID = o.LeaseName
	to.LeaderElectionNamespace = o.LeaseNamespace
	to.LeaseDuration = ptr.To(o.LeaseDuration)
	to.RenewDeadline = ptr.To(o.RenewDeadline)
	to.RetryPeriod = ptr.To(o.RetryPeriod)
	to.LeaderElectionResourceLock = "leases"
	if o.tenure != nil {
		to.LeaderElectionResourceLockInterface = o.tenure
	}
	// The process ends as soon as the manager has stopped, so nothing works without the lease.
	to.LeaderElectionReleaseOnCancel = true
}

// metricsServer says how metrics are served. The callers are checked with the unchanged configuration: replicas that do
// not lead must not write, and a TokenReview is created.
func (o *Options) metricsServer() metricsserver.Options {
	server := metricsserver.Options{BindAddress: o.MetricsAddress}
	if !o.MetricsSecure || o.MetricsAddress == "0" {
		return server
	}
	server.SecureServing, server.CertDir = true, o.MetricsCertDir
	server.FilterProvider = func(*rest.Config, *http.Client) (metricsserver.Filter, error) {
		client, err := rest.HTTPClientFor(o.config)
		if err != nil {
			return nil, fmt.Errorf("make the client that checks who reads metrics: %w", err)
		}
		return filters.WithAuthenticationAndAuthorization(o.config, client)
	}
	return server
}
