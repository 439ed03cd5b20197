// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
)

func wantRights(o *remote.Options) { o.Rights = []remote.Right{remote.ReadLogs, remote.LookUp} }

// probed says whether a request asks for a right, and for which.
func probed(req *http.Request) (right remote.Right, is bool) {
	switch {
	case strings.HasSuffix(req.URL.Path, "/log"):
		return remote.ReadLogs, true
	case strings.Contains(req.URL.Path, "/secrets/"):
		return remote.LookUp, true
	}
	return "", false
}

// TestForbiddenRights: a worker that does not grant rights without which it can run jobs takes jobs as any other, and its
// status says which are missing, until they are there.
func TestForbiddenRights(t *testing.T) {
	server := shared.Get(t)
	var granted atomic.Value
	granted.Store(remote.Right(""))
	worker := newLiar(t, server, account(t, server, "rights-forbidden", hubRules()...))
	var asked atomic.Int32
	worker.lie(func(w http.ResponseWriter, req *http.Request) bool {
		right, is := probed(req)
		if !is {
			return false
		}
		asked.Add(1)
		if right != granted.Load() && granted.Load() != remote.Right("all") {
			return false // The worker itself answers.
		}
		w.WriteHeader(http.StatusNotFound)
		return true
	})
	fleet := newFleet(t, wantRights)
	fleet.Ensure("a", worker.credentials, uidOf(t, server))
	cluster := get(t, fleet, "a")
	reach(t, cluster, remote.Connected)
	check.Diff(t, []remote.Right{remote.ReadLogs, remote.LookUp}, known(t, cluster).Forbidden, "forbidden rights")
	forbidden := func() []remote.Right { return cluster.Status().Forbidden }
	granted.Store(remote.LookUp)
	gomega.NewWithT(t).Eventually(forbidden, patience).Should(gomega.Equal([]remote.Right{remote.ReadLogs}))
	granted.Store(remote.Right("all"))
	gomega.NewWithT(t).Eventually(forbidden, patience).Should(gomega.BeEmpty())
	before := asked.Load()
	reach(t, cluster, remote.Connected)
	check.Equal(t, before, asked.Load(), "requests about rights after they are there")
}

// TestPermittedRights: a worker that grants the rights is asked once. When it has taken one back, whoever finds out that
// it forbids something makes the status say so.
func TestPermittedRights(t *testing.T) {
	server := shared.Get(t)
	rules := append(hubRules(), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/log", "secrets"}, Verbs: []string{"get"}})
	worker := newLiar(t, server, account(t, server, "rights-permitted", rules...))
	var takenBack atomic.Bool
	worker.lie(func(w http.ResponseWriter, req *http.Request) bool {
		if right, _ := probed(req); right != remote.LookUp || !takenBack.Load() {
			return false
		}
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	fleet := newFleet(t, wantRights)
	fleet.Ensure("a", worker.credentials, uidOf(t, server))
	cluster := get(t, fleet, "a")
	reach(t, cluster, remote.Connected)
	check.Equal(t, 0, len(known(t, cluster).Forbidden), "forbidden rights")
	takenBack.Store(true)
	cluster.DoubtRights()
	gomega.NewWithT(t).Eventually(func() []remote.Right { return cluster.Status().Forbidden }, patience).Should(
		gomega.Equal([]remote.Right{remote.LookUp}))
}
