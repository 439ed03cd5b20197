// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/ports"
)

// newCopy returns a TrainJob that an API server accepts, of this hub or another hub.
func newCopy(name, hub string) *unstructured.Unstructured {
	job := trainjobs.New()
	job.SetNamespace("default")
	job.SetName(name)
	if hub != "" {
		job.SetLabels(map[string]string{v1alpha1.LabelHub: hub})
	}
	job.Object["spec"] = map[string]any{"runtimeRef": map[string]any{"name": "torch-distributed"}}
	return job
}

// TestConnect checks the first contact without a pin, the pin, and what a worker can do with the least rights.
func TestConnect(t *testing.T) {
	server := shared.Get(t)
	g, ctx := gomega.NewWithT(t), t.Context()
	fleet := newFleet(t)
	credentials, id := account(t, server, "connect", hubRules()...), uidOf(t, server)

	fleet.Ensure("a", credentials, "")
	cluster := get(t, fleet, "a")
	g.Eventually(func() any { return cluster.Status().ClusterID }, patience).Should(gomega.Equal(id))
	status := cluster.Status()
	if status.State != remote.Connecting || !strings.Contains(status.Message, "waits to be pinned") {
		t.Errorf("state %s with message %q, want Connecting until it is pinned", status.State, status.Message)
	}
	if _, err := cluster.Client(); !remote.IsNotConnected(err) {
		t.Errorf("Client() of a worker without a pin: %v, want ErrNotConnected", err)
	}

	fleet.Ensure("a", credentials, id)
	reach(t, cluster, remote.Connected)
	status = known(t, cluster)
	want := remote.Status{
		State: remote.Connected, Message: "connected", ClusterID: id, Fingerprint: "connect",
		KubernetesVersion: status.KubernetesVersion, Trainer: status.Trainer, Since: status.Since, LastSeen: status.LastSeen,
	}
	check.Diff(t, want, status, "status")
	if !strings.HasPrefix(status.KubernetesVersion, "v1.") || status.LastSeen.IsZero() || status.Since.IsZero() {
		t.Errorf("status without version or times: %+v", status)
	}
	g.Eventually(func() []string { return cluster.Status().Trainer.Fields }, patience).Should(gomega.ContainElements(
		"managedBy", "runtimePatches", "runtimeRef", "suspend", "trainer"))
	if fields := cluster.Status().Trainer.Fields; !slices.IsSorted(fields) || cluster.Status().Trainer.Version != "v1alpha1" {
		t.Errorf("trainer %+v", cluster.Status().Trainer)
	}

	c, err := cluster.Client()
	check.Must(t, err)
	check.Must(t, c.Create(ctx, newCopy("ours", hubID)))
	check.Must(t, c.Create(ctx, newCopy("foreign", "")))
	check.Must(t, c.Create(ctx, newCopy("other-hub", "hub-2")))
	list := trainjobs.NewList()
	names := func() []string {
		check.Must(t, c.List(ctx, list))
		var names []string
		for _, item := range list.Items {
			names = append(names, item.GetName())
		}
		return names
	}
	g.Eventually(names, patience).Should(gomega.ConsistOf("ours"))
	if list.Items[0].GetManagedFields() != nil {
		t.Error("cached copies have managedFields")
	}
	if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "foreign"}, trainjobs.New()); !apierrors.IsNotFound(err) {
		t.Errorf("cached read of a foreign TrainJob: %v, want not found", err)
	}
	reader, err := cluster.APIReader()
	check.Must(t, err)
	check.Must(t, reader.Get(ctx, client.ObjectKey{Namespace: "default", Name: "foreign"}, trainjobs.New()))
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	check.Must(t, c.Get(ctx, client.ObjectKey{Name: "default"}, namespace))
	if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "x"}, &corev1.Secret{}); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("cached read of a Secret: %v, want an error that says that it is not cached", err)
	}

	fleet.Remove("a")
	check.Equal(t, remote.Closed, cluster.Status().State, "state after Remove")
	<-cluster.Done()
	if err := c.Create(ctx, newCopy("late", hubID)); !remote.IsNotConnected(err) {
		t.Errorf("write to a removed worker: %v, want ErrNotConnected", err)
	}
	for _, name := range []string{"ours", "foreign", "other-hub"} {
		live, err := client.New(server.Config, client.Options{})
		check.Must(t, err)
		check.Must(t, live.Delete(ctx, newCopy(name, "")))
	}
}

// TestIdentityChanged checks that no client, not even an old one, writes to a cluster that is not the pinned one.
func TestIdentityChanged(t *testing.T) {
	server := shared.Get(t)
	fleet, id := newFleet(t), uidOf(t, server)
	fleet.Ensure("a", adminCredentials(server), id)
	first := get(t, fleet, "a")
	reach(t, first, remote.Connected)
	c, err := first.Client()
	check.Must(t, err)

	// The address and credentials stay, but the worker was registered as another cluster.
	fleet.Ensure("a", adminCredentials(server), "another")
	second := get(t, fleet, "a")
	if first == second {
		t.Fatal("a worker with another pin kept the caches of the cluster before")
	}
	status := reach(t, second, remote.IdentityChanged)
	if !strings.Contains(status.Message, string(id)) || !strings.Contains(status.Message, "another") || status.ClusterID != id {
		t.Errorf("message %q with cluster ID %s, want both IDs named", status.Message, status.ClusterID)
	}
	<-first.Done()
	if err := c.Create(t.Context(), newCopy("stranger", hubID)); !remote.IsNotConnected(err) {
		t.Errorf("write by a client from before: %v, want ErrNotConnected", err)
	}
	if _, err := second.Client(); !remote.IsNotConnected(err) {
		t.Errorf("Client() = %v, want ErrNotConnected", err)
	}

	// An admin pins the new cluster ID.
	fleet.Ensure("a", adminCredentials(server), id)
	reach(t, get(t, fleet, "a"), remote.Connected)
}

// TestRotation checks that a revoked token leads to CredentialsInvalid, never to Unreachable, and that new credentials
// reconnect the worker with the same caches and without a list.
func TestRotation(t *testing.T) {
	server := shared.Get(t)
	g, ctx := gomega.NewWithT(t), t.Context()
	before, after := account(t, server, "before", hubRules()...), account(t, server, "after", hubRules()...)
	fleet := newFleet(t)
	told := keepJournal(fleet)
	fleet.Ensure("rotated", before, uidOf(t, server))
	cluster := get(t, fleet, "rotated")
	reach(t, cluster, remote.Connected)
	c, err := cluster.Client()
	check.Must(t, err)
	awaitOptional(t, cluster)
	serverCount, ownCount := serverLists(t, server), ownLists(t, "rotated")
	if !strings.Contains(serverCount, `resource="pods"`) || !strings.Contains(ownCount, "watchlist") {
		t.Fatalf("no lists are counted, so that the test would prove nothing:\n%s\n%s", serverCount, ownCount)
	}

	check.Must(t, adminOf(t, server).CoreV1().ServiceAccounts("default").Delete(ctx, "before", metav1.DeleteOptions{}))
	status := reach(t, cluster, remote.CredentialsInvalid)
	if !strings.Contains(status.Message, "401") {
		t.Errorf("message %q", status.Message)
	}
	if err := c.Create(ctx, newCopy("early", hubID)); !remote.IsNotConnected(err) {
		t.Errorf("write with revoked credentials: %v, want ErrNotConnected", err)
	}

	fleet.Ensure("rotated", after, cluster.Status().ClusterID)
	if get(t, fleet, "rotated") != cluster {
		t.Fatal("other credentials for the same host made another Cluster")
	}
	reach(t, cluster, remote.Connected)
	check.Equal(t, "after", cluster.Status().Fingerprint, "fingerprint")
	check.Must(t, c.Create(ctx, newCopy("rotated", hubID)))
	g.Eventually(func() error {
		return c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "rotated"}, trainjobs.New())
	}, patience).Should(gomega.Succeed(), "the caches do not go on after the rotation")
	check.Must(t, c.Delete(ctx, newCopy("rotated", hubID)))

	check.Diff(t, serverCount, serverLists(t, server), "the API server's count of lists has changed by the rotation")
	check.Diff(t, ownCount, ownLists(t, "rotated"), "our own count of lists has changed by the rotation")
	g.Eventually(func() string { return told.of("rotated") }, patience).Should(gomega.Equal("Connecting Connected CredentialsInvalid Connected"))
}

// TestForbidden checks that the message names a missing right, and that granting the right is enough.
func TestForbidden(t *testing.T) {
	server := shared.Get(t)
	rules := hubRules()
	rules[0].Resources = []string{"namespaces", "nodes"}
	credentials := account(t, server, "forbidden", rules...)
	fleet := newFleet(t)
	fleet.Ensure("a", credentials, uidOf(t, server))
	cluster := get(t, fleet, "a")
	status := reach(t, cluster, remote.CredentialsInvalid)
	gomega.NewWithT(t).Eventually(func() string { return cluster.Status().Message }, patience).Should(
		gomega.ContainSubstring(`"list pods"`), status.Message)

	roles := adminOf(t, server).RbacV1().ClusterRoles()
	role, err := roles.Get(t.Context(), "forbidden", metav1.GetOptions{})
	check.Must(t, err)
	role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch"}})
	_, err = roles.Update(t.Context(), role, metav1.UpdateOptions{})
	check.Must(t, err)
	reach(t, cluster, remote.Connected)
}

// TestWrongAuthority checks that a server with a wrong certificate is Unreachable, with a message that says why.
func TestWrongAuthority(t *testing.T) {
	server := shared.Get(t)
	other := httptest.NewTLSServer(http.NotFoundHandler())
	defer other.Close()
	cases := map[string]struct {
		reason  string
		config  *rest.Config
		message string
	}{
		"UnknownAuthority": {
			reason:  "The certificate authority has changed, or it is another server.",
			config:  &rest.Config{Host: other.URL, BearerToken: "x", TLSClientConfig: rest.TLSClientConfig{CAData: server.Config.CAData}},
			message: "not signed by the kubeconfig's certificate authority",
		},
		"WrongHost": {
			reason: "The certificate is for other names.",
			config: &rest.Config{
				Host: server.Config.Host, BearerToken: "x",
				TLSClientConfig: rest.TLSClientConfig{CAData: server.Config.CAData, ServerName: "wrong.example.com"},
			},
			message: "not valid for the host in the kubeconfig",
		},
		"NotTLS": {
			reason:  "An HTTP server.",
			config:  &rest.Config{Host: strings.Replace(plain(t), "http:", "https:", 1), BearerToken: "x"},
			message: "does not speak TLS",
		},
		"Refused": {
			reason: "Nobody listens.", config: &rest.Config{Host: "https://" + unused(t), BearerToken: "x"},
			message: "connection refused",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fleet := newFleet(t)
			fleet.Ensure("a", remote.Credentials{Config: tc.config, Fingerprint: "1"}, "any")
			status := reach(t, get(t, fleet, "a"), remote.Unreachable)
			if !strings.Contains(status.Message, tc.message) {
				t.Errorf("%s\nmessage %q, want one with %q", tc.reason, status.Message, tc.message)
			}
		})
	}
}

func plain(t *testing.T) string {
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	return server.URL
}

// unused returns an address without a listener.
func unused(t *testing.T) string {
	address, err := ports.Free()
	check.Must(t, err)
	return address
}

// silent returns the address of a server that accepts connections and never answers.
func silent(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, listener.Close()) })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(t.Context(), func() { connection.Close() })
		}
	}()
	return listener.Addr().String()
}

// TestIsolation checks that a worker that never answers does not delay a healthy worker, and can be removed at once.
func TestIsolation(t *testing.T) {
	server := shared.Get(t)
	fleet := newFleet(t, func(o *remote.Options) { o.ProbeTimeout = time.Minute })
	dead := remote.Credentials{Config: &rest.Config{Host: "https://" + silent(t), BearerToken: "x"}, Fingerprint: "1"}
	start := time.Now()
	fleet.Ensure("dead", dead, "any")
	fleet.Ensure("alive", adminCredentials(server), uidOf(t, server))
	if d := time.Since(start); d > 30*time.Second { // Half of the time that a probe may take.
		t.Errorf("Ensure took %s", d)
	}
	reach(t, get(t, fleet, "alive"), remote.Connected)
	check.Equal(t, remote.Connecting, get(t, fleet, "dead").Status().State, "state of the silent worker")
	start = time.Now()
	dead.Fingerprint = "2"
	fleet.Ensure("dead", dead, "any")
	fleet.Remove("dead")
	if d := time.Since(start); d > 30*time.Second {
		t.Errorf("Remove took %s", d)
	}

	impatient := newFleet(t, func(o *remote.Options) { o.ProbeTimeout = 100 * time.Millisecond })
	impatient.Ensure("dead", dead, "any")
	if status := reach(t, get(t, impatient, "dead"), remote.Unreachable); !strings.Contains(status.Message, "does not answer in time") {
		t.Errorf("message %q", status.Message)
	}
}

// TestSlowSubscriber checks that a subscriber that never returns delays neither workers nor other subscribers.
func TestSlowSubscriber(t *testing.T) {
	server := shared.Get(t)
	fleet := newFleet(t)
	block := make(chan struct{})
	defer close(block)
	fleet.Subscribe(func(v1alpha1.ClusterName, remote.Status) { <-block })
	told := keepJournal(fleet)
	fleet.Ensure("a", adminCredentials(server), uidOf(t, server))
	g := gomega.NewWithT(t)
	g.Eventually(func() string { return told.of("a") }, patience).Should(gomega.HaveSuffix("Connected"))
	fleet.Remove("a")
	g.Eventually(func() string { return told.of("a") }, patience).Should(gomega.HaveSuffix("Connected Closed"))
}
