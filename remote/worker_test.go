// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/capacity"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
)

// TestInventoryOfServer counts nodes and pods of a real API server. The test binds the pods itself.
func TestInventoryOfServer(t *testing.T) {
	server := shared.Get(t)
	g, ctx, admin := gomega.NewWithT(t), t.Context(), adminOf(t, server)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu-0", Labels: map[string]string{"nvidia.com/gpu.product": "H100"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}}},
	}
	node, err := admin.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	check.Must(t, err)
	node.Status.Allocatable = corev1.ResourceList{
		"cpu": resource.MustParse("96"), "nvidia.com/gpu": resource.MustParse("8"), "pods": resource.MustParse("110"),
	}
	node.Status.Capacity = node.Status.Allocatable
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	_, err = admin.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	check.Must(t, err)
	pods := admin.CoreV1().Pods("default")
	create := func(name, gpus string) *corev1.Pod {
		pod, err := pods.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				"jobset.sigs.k8s.io/jobset-name": "job", "jobset.sigs.k8s.io/replicatedjob-name": "node",
			}},
			Spec: corev1.PodSpec{NodeName: "gpu-0", Containers: []corev1.Container{{
				Name: "a", Image: "a", Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{"cpu": resource.MustParse("500m"), "nvidia.com/gpu": resource.MustParse(gpus)},
					Limits:   corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(gpus)},
				},
			}}},
		}, metav1.CreateOptions{})
		check.Must(t, err)
		return pod
	}
	create("p0", "4")

	fleet := newFleet(t)
	fleet.Ensure("a", adminCredentials(server), uidOf(t, server))
	cluster := get(t, fleet, "a")
	var changes atomic.Int32
	cluster.Inventory().Subscribe(func() { changes.Add(1) })
	reach(t, cluster, remote.Connected)
	// In state Connected, everything has been counted.
	want := &capacity.NodeState{
		Name: "gpu-0", Labels: node.Labels, Taints: node.Spec.Taints, Schedulable: true,
		Allocatable: capacity.Resources{"cpu": 96000, "nvidia.com/gpu": 8, "pods": 110},
		Used:        capacity.Resources{"cpu": 500, "nvidia.com/gpu": 4, "pods": 1},
		Gangs: map[types.NamespacedName]capacity.Resources{
			{Namespace: "default", Name: "job"}: {"cpu": 500, "nvidia.com/gpu": 4, "pods": 1},
		},
		Count: 1,
	}
	snapshot := cluster.Inventory().Snapshot()
	check.Diff(t, []*capacity.NodeState{want}, snapshot.Nodes, "nodes")
	job := types.NamespacedName{Namespace: "default", Name: "job"}
	check.Diff(t, map[types.NamespacedName]map[string]capacity.GangPods{job: {"node": {Bound: 1}}}, snapshot.Gangs,
		"gangs")

	told := changes.Load()
	second := create("p1", "2")
	used := func() capacity.Resources { return cluster.Inventory().Snapshot().Nodes[0].Used }
	g.Eventually(used, patience).Should(gomega.Equal(capacity.Resources{"cpu": 1000, "nvidia.com/gpu": 6, "pods": 2}))
	if changes.Load() == told {
		t.Error("subscriber of the inventory was not told")
	}
	second.Status.Phase = corev1.PodSucceeded
	_, err = pods.UpdateStatus(ctx, second, metav1.UpdateOptions{})
	check.Must(t, err)
	g.Eventually(func() any { return cluster.Inventory().Snapshot().Gangs[job]["node"] }, patience).Should(
		gomega.Equal(capacity.GangPods{Bound: 1, Succeeded: 1}))
	check.Diff(t, want.Used, used(), "used after a pod has succeeded")

	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	for _, name := range []string{"p0", "p1"} {
		check.Must(t, pods.Delete(ctx, name, now))
	}
	check.Must(t, admin.CoreV1().Nodes().Delete(ctx, "gpu-0", now))
	g.Eventually(func() int {
		s := cluster.Inventory().Snapshot()
		return len(s.Nodes) + len(s.Gangs)
	}, patience).Should(gomega.BeZero())
}

// TestMetrics checks that a worker has metrics while it is in the fleet, and none after.
func TestMetrics(t *testing.T) {
	server := shared.Get(t)
	fleet := newFleet(t)
	fleet.Ensure("measured", adminCredentials(server), uidOf(t, server))
	cluster := get(t, fleet, "measured")
	reach(t, cluster, remote.Connected)
	c, err := cluster.Client()
	check.Must(t, err)
	if err := c.Delete(t.Context(), newCopy("none", "")); err == nil {
		t.Error("deleted what is not there")
	}
	counts := series(t, "trainyard_worker_requests_total", "measured")
	if counts["404 delete"] != 1 || counts["200 get"] == 0 {
		t.Errorf("requests: %v", counts)
	}
	gomega.NewWithT(t).Eventually(func() any { return series(t, "trainyard_worker_state", "measured") }, patience).Should(
		gomega.And(gomega.HaveKeyWithValue("Connected", 1.0), gomega.HaveKeyWithValue("Unreachable", 0.0)))
	fleet.Remove("measured")
	for _, metric := range []string{"trainyard_worker_requests_total", "trainyard_worker_state"} {
		if left := series(t, metric, "measured"); len(left) > 0 {
			t.Errorf("%s after Remove: %v", metric, left)
		}
	}
}

// TestClientCertificateRefused checks that a refused client certificate is a matter of credentials, not of a lost
// worker, even if a proxy refuses it during the TLS handshake.
func TestClientCertificateRefused(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert}
	server.StartTLS()
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	fleet := newFleet(t)
	fleet.Ensure("a", remote.Credentials{Config: &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}}, "any")
	status := reach(t, get(t, fleet, "a"), remote.CredentialsInvalid)
	if !strings.Contains(status.Message, "refuses the client certificate") {
		t.Errorf("message %q", status.Message)
	}
}

// TestUnusableCredentials checks that credentials that kubeconfigs would refuse lead to a state, not to a panic.
func TestUnusableCredentials(t *testing.T) {
	cases := map[string]struct {
		reason string
		config *rest.Config
	}{
		"CA":      {"It is not PEM.", &rest.Config{Host: "https://worker", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("x")}}},
		"Address": {"It is not a URL.", &rest.Config{Host: "https://wor ker"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fleet := newFleet(t)
			fleet.Ensure("a", remote.Credentials{Config: tc.config, Fingerprint: "1"}, "any")
			cluster := get(t, fleet, "a")
			if status := reach(t, cluster, remote.CredentialsInvalid); status.Message == "" {
				t.Errorf("%s\nno message", tc.reason)
			}
			if cluster.Cache() == nil {
				t.Errorf("%s\nno cache", tc.reason)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	cases := map[string]struct {
		reason string
		opts   remote.Options
		ok     bool
	}{
		"Defaults":    {"Only the hub ID is required.", remote.Options{HubID: "a"}, true},
		"NoHubID":     {"Without it the caches would hold everybody's TrainJobs.", remote.Options{}, false},
		"BadHubID":    {"It has to be a label value.", remote.Options{HubID: "a b"}, false},
		"BadDuration": {"Time runs forward.", remote.Options{HubID: "a", ProbeInterval: -time.Second}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			fleet, err := remote.NewFleet(ctx, tc.opts)
			if (err == nil) != tc.ok || (fleet != nil) != tc.ok {
				t.Errorf("%s\nNewFleet: %v", tc.reason, err)
			}
			cancel()
			if fleet != nil {
				fleet.Wait()
				fleet.Ensure("late", remote.Credentials{Config: &rest.Config{Host: "https://worker"}}, "")
				check.Equal(t, 0, len(fleet.List()), "a fleet that has ended took a worker")
			}
		})
	}
}

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
