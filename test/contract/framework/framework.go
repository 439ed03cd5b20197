// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/onsi/ginkgo/v2" //nolint:depguard // The suites are upstream's, and of ginkgo's.
	"github.com/onsi/gomega"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/trainyard/trainyard/controllers/worker/trainjob"
	"github.com/trainyard/trainyard/test/clusters"
	workerwebhooks "github.com/trainyard/trainyard/webhooks/worker"
)

const (
	// CRDsVariable is the environment variable that names a directory with CRDs of which no module has a file.
	CRDsVariable = "TRAINYARD_CONTRACT_CRDS"
	// waitLimit limits every wait, on a machine with other work.
	waitLimit    = time.Minute
	pollInterval = 50 * time.Millisecond
)

// Framework is what the suites use: a cluster, and a manager with what is tested.
type Framework struct {
	cluster *clusters.Cluster
	server  *clusters.WebhookServer
	admin   client.Client // without a cache
	stop    func() error  // of the manager; nil before it has started
}

// Init starts an API server that has the CRDs and calls the webhooks.
func (f *Framework) Init() *rest.Config {
	ctrl.SetLogger(ginkgo.GinkgoLogr)
	// If a test of upstream's sets no limit, gomega's limit is one second.
	gomega.SetDefaultEventuallyTimeout(waitLimit)
	ctx := context.Background()
	crds, err := crdPaths(ctx)
	succeed(err)
	f.cluster, err = clusters.Start(ctx, clusters.Options{Name: "contract", CRDs: crds})
	succeed(err)
	f.server, err = f.cluster.NewWebhookServer("trainer")
	succeed(err)
	f.admin, err = newClient(f.cluster.Config)
	succeed(err)
	succeed(installWebhooks(ctx, f.cluster, f.server, f.admin))
	return f.cluster.Config
}

// crdPaths are the paths in upstream's suites.
func crdPaths(ctx context.Context) ([]string, error) {
	paths := []string{os.Getenv(CRDsVariable)}
	if paths[0] == "" {
		return nil, fmt.Errorf("%s is not set: go test ./test/contract runs the suites", CRDsVariable)
	}
	podGroups := clusters.ModuleFile{Module: "sigs.k8s.io/scheduler-plugins", Path: "manifests/coscheduling/crd.yaml"}
	modules, err := clusters.ModulePaths(ctx, clusters.TrainerCRDs, clusters.JobSetCRDs, podGroups)
	return append(paths, modules...), err
}

func newClient(config *rest.Config) (client.Client, error) {
	scheme := apiruntime.NewScheme()
	if err := trainjob.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// RunManager starts a manager with the webhooks and, if asked for, the controller. It returns a client without a cache,
// and the context in which the manager runs.
func (f *Framework) RunManager(cfg *rest.Config, startControllers bool) (context.Context, client.Client) {
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:        f.admin.Scheme(),
		Cache:         trainjob.CacheOptions(),
		Metrics:       metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{Host: f.server.Host, Port: f.server.Port, CertDir: f.server.CertDir}),
	})
	succeed(err)

	ctx, cancel := context.WithCancel(context.Background())
	if startControllers {
		succeed(trainjob.Add(ctx, mgr, trainjob.Options{SkipNameValidation: true}))
	}
	succeed(workerwebhooks.Add(ctx, mgr, workerwebhooks.Options{NewRuntimes: trainjob.NewRuntimes}))
	stopped := make(chan error, 1)
	f.stop = func() error { cancel(); return <-stopped }
	go func() { stopped <- mgr.Start(ctx) }()
	started := mgr.GetWebhookServer().StartedChecker()
	gomega.Eventually(func() error { return started(nil) }, waitLimit, pollInterval).Should(gomega.Succeed())
	return ctx, f.admin
}

// Teardown ends the manager and then the API server, if that was not done before: one of upstream's suites calls it
// twice.
func (f *Framework) Teardown() {
	done := *f
	*f = Framework{}
	if done.stop != nil {
		succeed(done.stop())
	}
	if done.cluster != nil {
		succeed(done.cluster.Stop())
	}
}

// succeed fails the test that runs, with the place from which it was called.
func succeed(err error) {
	if err != nil {
		ginkgo.Fail(err.Error(), 1)
	}
}
