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

func wantLogs(o *remote.Options) { o.Logs = true }

// TestLogsForbidden: a worker that was joined before the hub needed the right to read logs takes jobs as before, and its
// status says that the right is missing, until it is there.
func TestLogsForbidden(t *testing.T) {
	server := shared.Get(t)
	var granted atomic.Bool
	worker := newLiar(t, server, account(t, server, "logs-forbidden", hubRules()...))
	var asked atomic.Int32
	worker.lie(func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.HasSuffix(req.URL.Path, "/log") {
			return false
		}
		asked.Add(1)
		if granted.Load() {
			w.WriteHeader(http.StatusNotFound)
		}
		return granted.Load()
	})
	fleet := newFleet(t, wantLogs)
	fleet.Ensure("a", worker.credentials, uidOf(t, server))
	cluster := get(t, fleet, "a")
	reach(t, cluster, remote.Connected)
	check.Equal(t, true, known(t, cluster).LogsForbidden, "logs are forbidden")
	granted.Store(true)
	gomega.NewWithT(t).Eventually(func() bool { return cluster.Status().LogsForbidden }, patience).Should(gomega.BeFalse())
	before := asked.Load()
	reach(t, cluster, remote.Connected)
	check.Equal(t, before, asked.Load(), "requests about logs after the right is there")
}

// TestLogsPermitted: a worker that lets the hub read logs is asked once.
func TestLogsPermitted(t *testing.T) {
	server := shared.Get(t)
	rules := append(hubRules(), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}})
	fleet := newFleet(t, wantLogs)
	fleet.Ensure("a", account(t, server, "logs-permitted", rules...), uidOf(t, server))
	cluster := get(t, fleet, "a")
	reach(t, cluster, remote.Connected)
	check.Equal(t, false, known(t, cluster).LogsForbidden, "logs are forbidden")
}
