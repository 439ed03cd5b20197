// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

// counted counts the requests for OpenAPI documents.
type counted struct {
	http.RoundTripper
	documents *atomic.Int32
}

func (c counted) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.Contains(req.URL.Path, "/openapi/") {
		c.documents.Add(1)
	}
	return c.RoundTripper.RoundTrip(req)
}

// What a worker's API lacks is known when it is connected, and again when the CRDs of the hub or of the worker change. The
// documents are read once for each change.
func TestMissingFields(t *testing.T) {
	release := func(version string) string {
		dir, err := clusters.ReleaseCRDs(t.Context(), version)
		check.Must(t, err)
		return dir
	}
	jobSet, err := clusters.ModulePaths(t.Context(), clusters.JobSetCRDs)
	check.Must(t, err)
	onHub := ownServer(t, "hub", release(clusters.Trainer22))
	onWorker := ownServer(t, "worker", append(jobSet, release(clusters.Trainer21))...)
	g := gomega.NewWithT(t)

	var documents atomic.Int32
	config := rest.CopyConfig(onHub.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counted{next, &documents} })
	client, err := rest.HTTPClientFor(config)
	check.Must(t, err)
	hub, err := remote.NewHubAPI(config, client, logr.Discard())
	check.Must(t, err)
	g.Eventually(func() bool { return hub.Read(t.Context()) }, patience).Should(gomega.BeTrue(), "the hub publishes its schema")
	check.Equal(t, "2.2", hub.Release(), "the hub's release")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- hub.Run(ctx) }()
	t.Cleanup(func() { cancel(); check.Must(t, <-ended) })

	fleet := newFleet(t, func(o *remote.Options) { o.Hub = hub })
	fleet.Ensure("a", adminCredentials(onWorker), uidOf(t, onWorker))
	cluster := get(t, fleet, "a")
	trainer := func() remote.Trainer { return cluster.Status().Trainer }
	g.Eventually(trainer, patience).Should(gomega.SatisfyAll(
		gomega.HaveField("Release", "2.1"),
		gomega.HaveField("Missing", gomega.ConsistOf("activeDeadlineSeconds", "runtimePatches")),
		gomega.HaveField("MissingOfRuntimes", gomega.ContainElement("mlPolicy.jax")),
	))
	reach(t, cluster, remote.Connected)

	before := documents.Load()
	check.Must(t, onWorker.InstallCRDs(t.Context(), release(clusters.Trainer22)))
	g.Eventually(trainer, patience).Should(gomega.SatisfyAll(
		gomega.HaveField("Release", "2.2"), gomega.HaveField("Missing", gomega.BeEmpty()),
		gomega.HaveField("MissingOfRuntimes", gomega.BeEmpty()),
	), "the worker is upgraded")
	check.Equal(t, before, documents.Load(), "requests for the hub's document while the worker changes")

	check.Must(t, onHub.InstallCRDs(t.Context(), release(clusters.Trainer23)))
	g.Eventually(trainer, patience).Should(gomega.SatisfyAll(
		gomega.HaveField("Missing", gomega.ContainElement(gomega.HaveSuffix(".terminationGracePeriodSeconds"))),
		gomega.HaveField("MissingOfRuntimes", gomega.ContainElement("mlPolicy.torch.envInjection")),
	), "the hub is upgraded")
	check.Equal(t, "2.3", hub.Release(), "the hub's release after the upgrade")
}
