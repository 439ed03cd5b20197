// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

// uncounted connects to a worker, and returns what its status says of devices that do not count.
func uncounted(t *testing.T, server *clusters.Cluster, credentials remote.Credentials) string {
	t.Helper()
	fleet := newFleet(t)
	fleet.Ensure("a", credentials, uidOf(t, server))
	cluster := get(t, fleet, "a")
	reach(t, cluster, remote.Connected)
	return known(t, cluster).CapacityMessage
}

// TestDevicesForbidden: a worker that was joined before the hub needed the right to read devices takes jobs as before,
// and its status says what to do.
func TestDevicesForbidden(t *testing.T) {
	server := shared.Get(t)
	message := uncounted(t, server, account(t, server, "devices-forbidden", neededRules()...))
	for _, words := range []string{"forbids to list and watch", "resource.k8s.io", "kubectl trainyard join"} {
		check.Equal(t, true, strings.Contains(message, words), "message %q has %q", message, words)
	}
}

// TestTaintRulesForbidden: without the right to read DeviceTaintRules devices count as if there were none, and the status
// says what to do. With the right it has nothing to say.
func TestTaintRulesForbidden(t *testing.T) {
	server := shared.Get(t)
	without := slices.DeleteFunc(hubRules(), func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "devicetaintrules") })
	message := uncounted(t, server, account(t, server, "taint-rules-forbidden", without...))
	for _, words := range []string{"devices count also where a DeviceTaintRule", "devicetaintrules.resource.k8s.io", "kubectl trainyard join"} {
		check.Equal(t, true, strings.Contains(message, words), "message %q has %q", message, words)
	}
	check.Equal(t, "", uncounted(t, server, account(t, server, "taint-rules-permitted", hubRules()...)), "message with the right")
}

// TestNoTaintRules: a worker that serves devices and no DeviceTaintRules is not asked for them.
func TestNoTaintRules(t *testing.T) {
	server := shared.Get(t)
	worker := newLiar(t, server, account(t, server, "no-taint-rules", hubRules()...))
	asked := sync.Map{}
	worker.lie(func(w http.ResponseWriter, req *http.Request) bool {
		answers := map[string]string{
			"/version":              `{"gitVersion": "v1.36.3"}`,
			"/apis/resource.k8s.io": `{"kind": "APIGroup", "apiVersion": "v1", "versions": [{"groupVersion": "resource.k8s.io/v1", "version": "v1"}]}`,
		}
		if strings.HasPrefix(req.URL.Path, "/apis/resource.k8s.io") {
			count, _ := asked.LoadOrStore(req.URL.Path, new(atomic.Int32))
			count.(*atomic.Int32).Add(1)
		}
		if answers[req.URL.Path] == "" {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(answers[req.URL.Path]))
		return true
	})
	check.Equal(t, "", uncounted(t, server, worker.credentials), "message")
	var paths []string
	asked.Range(func(path, count any) bool {
		paths = append(paths, path.(string))
		if path == "/apis/resource.k8s.io" {
			check.Equal(t, int32(1), count.(*atomic.Int32).Load(), "requests that ask what is served")
		}
		return true
	})
	slices.Sort(paths)
	check.Diff(t, []string{
		"/apis/resource.k8s.io", "/apis/resource.k8s.io/v1/deviceclasses", "/apis/resource.k8s.io/v1/resourceclaims",
		"/apis/resource.k8s.io/v1/resourceclaimtemplates", "/apis/resource.k8s.io/v1/resourceslices",
	}, paths, "what the worker is asked for")
}

// TestNoDevices: a worker that does not serve devices is not asked for them.
func TestNoDevices(t *testing.T) {
	server := shared.Get(t)
	worker := newLiar(t, server, account(t, server, "no-devices", hubRules()...))
	var asked atomic.Int32
	worker.lie(func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.HasPrefix(req.URL.Path, "/apis/resource.k8s.io") {
			return false
		}
		asked.Add(1)
		w.WriteHeader(http.StatusNotFound)
		return true
	})
	check.Equal(t, "", uncounted(t, server, worker.credentials), "message")
	check.Equal(t, int32(1), asked.Load(), "requests about devices: one asks whether they are served")
}
