// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

// TestOutage checks that a killed API server is Unreachable since the first failure. When it is back, the same clients
// and caches continue to work.
func TestOutage(t *testing.T) {
	crds, err := allCRDs(t.Context())
	check.Must(t, err)
	server := ownServer(t, "mortal", crds...)
	g, ctx := gomega.NewWithT(t), t.Context()
	fleet := newFleet(t)
	told := keepJournal(fleet)
	fleet.Ensure("a", adminCredentials(server), uidOf(t, server))
	cluster := get(t, fleet, "a")
	reach(t, cluster, remote.Connected)
	c, err := cluster.Client()
	check.Must(t, err)
	caches := cluster.Cache()
	check.Must(t, c.Create(ctx, newCopy("before", hubID)))
	key := client.ObjectKey{Namespace: "default", Name: "before"}
	g.Eventually(func() error { return c.Get(ctx, key, trainjobs.New()) }, patience).Should(gomega.Succeed())

	killed := time.Now()
	check.Must(t, server.KillAPIServer())
	status := reach(t, cluster, remote.Unreachable)
	if noticed := time.Now(); status.Since.Before(killed.Add(-time.Second)) || status.Since.After(noticed.Add(-time.Second)) {
		t.Errorf("unreachable since %s, noticed at %s, killed at %s: want the first failure", status.Since, noticed, killed)
	}
	if status.LastSeen.After(status.Since) || status.KubernetesVersion == "" || status.ClusterID == "" {
		t.Errorf("what was known before the outage is lost: %+v", status)
	}
	if err := c.Create(ctx, newCopy("during", hubID)); !remote.IsNotConnected(err) {
		t.Errorf("write to an unreachable worker: %v, want ErrNotConnected", err)
	}
	if err := c.Get(ctx, key, trainjobs.New()); err != nil {
		t.Errorf("cached read during the outage: %v", err)
	}

	check.Must(t, server.StartAPIServer(ctx))
	reach(t, cluster, remote.Connected)
	if get(t, fleet, "a") != cluster || cluster.Cache() != caches {
		t.Error("the outage made another Cluster or cache")
	}
	g.Eventually(func() error { return c.Create(ctx, newCopy("after", hubID)) }, patience).Should(gomega.Succeed())
	key.Name = "after"
	g.Eventually(func() error { return c.Get(ctx, key, trainjobs.New()) }, patience).Should(gomega.Succeed())
	if states := told.of("a"); !strings.HasPrefix(states, "Connecting Connected Unreachable") || !strings.HasSuffix(states, " Connected") {
		t.Errorf("states %s", states)
	}
}

// TestShortPause checks that a worker that pauses for less than the threshold stays Connected and gets all writes.
func TestShortPause(t *testing.T) {
	crds, err := allCRDs(t.Context())
	check.Must(t, err)
	server := ownServer(t, "restarted", crds...)
	fleet := newFleet(t, func(o *remote.Options) { o.FailureThreshold = 60; o.RequestTimeout = patience })
	told := keepJournal(fleet)
	fleet.Ensure("a", adminCredentials(server), uidOf(t, server))
	cluster := get(t, fleet, "a")
	reach(t, cluster, remote.Connected)
	c, err := cluster.Client()
	check.Must(t, err)

	check.Must(t, server.KillAPIServer())
	written := make(chan error, 1)
	go func() { written <- c.Create(t.Context(), newCopy("during", hubID)) }()
	check.Must(t, server.StartAPIServer(t.Context()))
	if err := <-written; err != nil && !isBroken(err) {
		t.Errorf("write during the pause: %v", err)
	}
	gomega.NewWithT(t).Eventually(func() error {
		return client.IgnoreAlreadyExists(c.Create(t.Context(), newCopy("during", hubID)))
	}, patience).Should(gomega.Succeed())
	if states := told.of("a"); states != "Connecting Connected" && states != "Connected" {
		t.Errorf("states %s, want no disconnect", states)
	}
}

// isBroken says whether the error is of a killed server. The error depends on how far the request was.
func isBroken(err error) bool {
	return slices.ContainsFunc([]string{"connection re", "EOF", "broken pipe"}, func(words string) bool { return strings.Contains(err.Error(), words) })
}

// TestMissingAPIs checks that a message names each missing CRD, and that installing the CRD is enough. A worker
// without JobSets is connected: the hub must be able to take jobs back.
func TestMissingAPIs(t *testing.T) {
	server := ownServer(t, "bare")
	fleet := newFleet(t)
	fleet.Ensure("a", adminCredentials(server), uidOf(t, server))
	cluster := get(t, fleet, "a")
	status := reach(t, cluster, remote.TrainJobAPIMissing)
	if !strings.Contains(status.Message, "Kubeflow Trainer") || status.KubernetesVersion == "" {
		t.Errorf("status %+v", status)
	}
	crds, err := clusters.ModulePaths(t.Context(), clusters.TrainerCRDs, clusters.JobSetCRDs)
	check.Must(t, err)
	check.Must(t, server.InstallCRDs(t.Context(), crds[0]))
	reach(t, cluster, remote.Connected)
	expectJobSets := func(served bool) {
		t.Helper()
		gomega.NewWithT(t).Eventually(func(g gomega.Gomega) {
			status := cluster.Status()
			g.Expect(status.State).To(gomega.Equal(remote.Connected), status.Message)
			g.Expect(strings.Contains(status.JobSetMissing, "install JobSet")).To(gomega.Equal(!served), status.JobSetMissing)
		}, patience).Should(gomega.Succeed())
	}
	expectJobSets(false)
	check.Must(t, server.InstallCRDs(t.Context(), crds[1]))
	expectJobSets(true)
	_, err = server.Kubectl(t.Context(), "delete", "crd", "jobsets.jobset.x-k8s.io")
	check.Must(t, err)
	expectJobSets(false) // No other API server, and no probe, tells of it.
	check.Must(t, server.InstallCRDs(t.Context(), crds[1]))
	expectJobSets(true)

	_, err = server.Kubectl(t.Context(), "delete", "crd", "trainjobs.trainer.kubeflow.org")
	check.Must(t, err)
	reach(t, cluster, remote.TrainJobAPIMissing)
}
