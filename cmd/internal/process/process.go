// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Log formats.
const (
	LogText = "text"
	LogJSON = "json"
)

// syncCheckTimeout is how long a readiness check waits for the caches. A kubelet waits for a second by default.
const syncCheckTimeout = 500 * time.Millisecond

// SetUpLog logs to standard error, also for controller-runtime and client-go.
func (o *Options) SetUpLog() logr.Logger {
	options := &slog.HandlerOptions{Level: slog.Level(-o.LogVerbosity)}
	var handler slog.Handler = slog.NewTextHandler(os.Stderr, options)
	if o.LogFormat == LogJSON {
		handler = slog.NewJSONHandler(os.Stderr, options)
	}
	log := logr.FromSlogHandler(handler)
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	return log
}

// How long a process takes to end. The Deployments give it longer: the kubelet kills a process that does not end in
// terminationGracePeriodSeconds, and then nobody learns why.
const (
	// stopTimeout is how long controllers and servers may take to return.
	stopTimeout = 20 * time.Second
	// endTimeout is how long all of a stop may take, with the release of the lease.
	endTimeout = 25 * time.Second
)

// Run answers probes and runs the manager until ctx ends. Then it returns nil. If something does not stop in time, it
// returns an error, and the process has to exit, because that something still runs.
func Run(ctx context.Context, mgr ctrl.Manager) error { return run(ctx, mgr, endTimeout) }

func run(ctx context.Context, mgr ctrl.Manager, patience time.Duration) error {
	// Caches fill before the process holds the lease, so a standby replica is ready too.
	synced := func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), syncCheckTimeout)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("caches are not filled yet")
		}
		return nil
	}
	if err := errors.Join(mgr.AddHealthzCheck("healthz", healthz.Ping), mgr.AddReadyzCheck("readyz", synced)); err != nil {
		return fmt.Errorf("add health checks: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	if err := await(ctx, ended, patience); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	return nil
}

// await waits for the end of a manager, but not for longer than patience after the end of ctx: a manager whose caches are
// not filled yet does not look at its context, and nothing limits its own wait for the release of the lease.
func await(ctx context.Context, ended <-chan error, patience time.Duration) error {
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(patience):
		return fmt.Errorf("the manager has not stopped within %s", patience)
	}
}

// Requirement is an API that must be installed in the cluster.
type Requirement struct {
	GroupVersion schema.GroupVersion
	// Resources are plural names.
	Resources []string
	// Install says how to install it.
	Install string
}

// The APIs that the processes need.
var (
	TrainerAPI = Requirement{
		GroupVersion: trainer.SchemeGroupVersion,
		Resources:    []string{"clustertrainingruntimes", "trainingruntimes", "trainjobs"},
		Install: "install Kubeflow Trainer's CRDs: kubectl apply --server-side -k " +
			"https://github.com/kubeflow/trainer.git/manifests/base/crds?ref=v2.3.0",
	}
	JobSetAPI = Requirement{
		GroupVersion: jobsetv1alpha2.SchemeGroupVersion,
		Resources:    []string{"jobsets"},
		Install: "install JobSet: kubectl apply --server-side -f " +
			"https://github.com/kubernetes-sigs/jobset/releases/download/v0.12.0/manifests.yaml",
	}
	TrainyardAPI = Requirement{
		GroupVersion: v1alpha1.GroupVersion,
		Resources:    []string{"dispatches", "dispatchpolicies", "tombstones", "workerclusters"},
		Install:      "install Trainyard's CRDs: kubectl apply --server-side -k config/crd",
	}
	MultiKueueAPI = Requirement{
		GroupVersion: kueues.GroupVersion,
		Resources:    []string{"workloads", "admissionchecks", "multikueueconfigs", "multikueueclusters"},
		Install:      "install Kueue v0.19 or later on the hub, or take the flag --kueue-dispatcher off",
	}
	KueueAPI = Requirement{
		GroupVersion: kueues.GroupVersion,
		Resources:    []string{"workloads", "admissionchecks", "resourceflavors"},
		Install:      "install Kueue v0.19 or later on the hub, or take the flag --kueue-admission-check off",
	}
)

// lacks returns one line that names the CRDs that the cluster lacks and says how to install them. It is empty if the
// cluster has all of them.
func lacks(config *rest.Config, requirements []Requirement) (string, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return "", fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	var faults []string
	for _, required := range requirements {
		served, err := client.ServerResourcesForGroupVersion(required.GroupVersion.String())
		if err != nil && !apierrors.IsNotFound(err) {
			return "", fmt.Errorf("ask %s for %s: %w", config.Host, required.GroupVersion, err)
		}
		if missing := required.missing(served); len(missing) > 0 {
			faults = append(faults, fmt.Sprintf("%s (%s)", strings.Join(missing, ", "), required.Install))
		}
	}
	if len(faults) == 0 {
		return "", nil
	}
	return fmt.Sprintf("%s lacks the CustomResourceDefinitions %s", config.Host, strings.Join(faults, " and ")), nil
}

// missing returns the full names of the resources that the cluster does not serve.
func (r Requirement) missing(served *metav1.APIResourceList) []string {
	var names []string
	for _, name := range r.Resources {
		if served == nil || !slices.ContainsFunc(served.APIResources, func(a metav1.APIResource) bool { return a.Name == name }) {
			names = append(names, name+"."+r.GroupVersion.Group+"/"+r.GroupVersion.Version)
		}
	}
	return names
}
