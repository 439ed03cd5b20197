// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
)

// TestDevicesForbidden: a worker that was joined before the hub needed the right to read devices takes jobs as before,
// and its status says what to do.
func TestDevicesForbidden(t *testing.T) {
	server := shared.Get(t)
	fleet := newFleet(t)
	fleet.Ensure("a", account(t, server, "devices-forbidden", neededRules()...), uidOf(t, server))
	cluster := get(t, fleet, "a")
	reach(t, cluster, remote.Connected)
	status := known(t, cluster)
	for _, words := range []string{"forbids to list and watch", "resource.k8s.io", "kubectl trainyard join"} {
		check.Equal(t, true, strings.Contains(status.CapacityMessage, words), "message %q has %q", status.CapacityMessage, words)
	}
}

// TestNoDevices: a worker that does not serve devices is not asked for them.
func TestNoDevices(t *testing.T) {
	server := shared.Get(t)
	worker := newLiar(t, server, account(t, server, "no-devices", hubRules()...))
	var asked atomic.Int32
	worker.lie(func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.HasPrefix(req.URL.Path, "/apis/resource.k8s.io/") {
			return false
		}
		asked.Add(1)
		w.WriteHeader(http.StatusNotFound)
		return true
	})
	fleet := newFleet(t)
	fleet.Ensure("a", worker.credentials, uidOf(t, server))
	cluster := get(t, fleet, "a")
	reach(t, cluster, remote.Connected)
	check.Equal(t, "", known(t, cluster).CapacityMessage, "message")
	check.Equal(t, int32(1), asked.Load(), "requests about devices: one asks whether they are served")
}
