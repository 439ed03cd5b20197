// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"testing"

	"github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// TestFaultLeaderChanges: each replica answers, whether it leads or not, also after another one has become the leader.
func TestFaultLeaderChanges(t *testing.T) {
	address, process, err := y.Managers.StandBy(t.Context())
	check.Must(t, err)
	defer func() { check.Must(t, process.Stop()) }() // It lets go of the lease.
	second, err := y.UserAt("second", address, viewer.Token, team)
	check.Must(t, err)
	first := submit(t, yard.Job{Name: "before-the-change"}, east, "one")
	pod := runs(t, east, first)[0]
	for name, u := range map[string]*yard.User{"Leader": viewer, "StandBy": second} {
		r := u.Kubectl(t.Context(), "logs", pod)
		check.Equal(t, "one\n", r.Out, "%s: %s", name, r)
		r = u.Kubectl(t.Context(), "get", "pods")
		contains(t, r.Out, pod)
	}
	before := leader(gomega.NewWithT(t))
	check.Must(t, y.Managers.Away())
	// Only the replica that stood by runs now, so whoever has taken the lease over is this one.
	var after string
	y.Eventually(t, func(g gomega.Gomega) {
		after = leader(g)
		g.Expect(after).NotTo(gomega.BeElementOf("", before))
	})
	// It works as the leader: only the leader places jobs.
	later := submit(t, yard.Job{Name: "after-the-change"}, west, "two")
	pod = runs(t, west, later)[0]
	contains(t, second.Kubectl(t.Context(), "get", "pods").Out, pod)
	check.Must(t, y.Managers.Back())
	for name, u := range map[string]*yard.User{"Leader": second, "StandBy": viewer} {
		t.Log(name)
		eventually(t, func() bool { return u.Kubectl(t.Context(), "logs", pod).Out == "two\n" })
	}
	check.Equal(t, after, leader(gomega.NewWithT(t)), "leader at the end")
}

// leader is the identity of the manager that holds the lease.
func leader(g gomega.Gomega) string {
	lease := &coordinationv1.Lease{}
	g.Expect(y.Hub.Get(context.Background(), client.ObjectKey{Namespace: "trainyard-system", Name: "manager.trainyard.dev"}, lease)).To(gomega.Succeed())
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}
