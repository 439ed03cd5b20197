// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/onsi/gomega"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/capacity"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
)

// TestPanicOverAnEvent: a handler that panics over a copy ends no process. The worker takes no jobs from then on, its
// status says why, and the handler gets the next events.
func TestPanicOverAnEvent(t *testing.T) {
	server := shared.Get(t)
	g := gomega.NewWithT(t)
	fleet := newFleet(t)
	fleet.Ensure("panics", adminCredentials(server), uidOf(t, server))
	cluster := get(t, fleet, "panics")
	informer, err := cluster.Cache().GetInformer(t.Context(), trainjobs.New())
	check.Must(t, err)
	var seen atomic.Int32
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		switch obj.(client.Object).GetName() {
		case "poison":
			panic("it was poisoned")
		case "harmless":
			seen.Add(1)
		}
	}})
	check.Must(t, err)
	reach(t, cluster, remote.Connected)

	admin, err := client.New(server.Config, client.Options{})
	check.Must(t, err)
	for _, name := range []string{"poison", "harmless"} {
		check.Must(t, admin.Create(t.Context(), newCopy(name, hubID)))
		t.Cleanup(func() { check.Must(t, admin.Delete(context.Background(), newCopy(name, hubID))) })
	}
	g.Eventually(seen.Load, patience).Should(gomega.Equal(int32(1)))
	g.Eventually(func() capacity.State { return cluster.Status().Capacity }, patience).Should(gomega.Equal(capacity.Unusable))
	const want = "an event of a TrainJob could not be handled, because of a fault of Trainyard: it was poisoned"
	if got := cluster.Status(); got.State != remote.Connected || got.CapacityMessage != want {
		t.Errorf("the state is %v: %q, want Connected: %q", got.State, got.CapacityMessage, want)
	}
}
