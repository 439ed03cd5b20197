// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	hublease "github.com/trainyard/trainyard/executionlease/hub"
	"github.com/trainyard/trainyard/executionlease/protocol"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

const (
	leaseCRD = "../../config/crd/worker/trainyard.dev_executionleases.yaml"
	// patience is the timeout for quick operations on a busy machine.
	patience = 60 * time.Second
	// margin and fenceAfter of most tests give 122 s from read to stopped.
	margin     = 20 * time.Second
	fenceAfter = 100 * time.Second
)

// environment is a hub, a worker with the ExecutionLease API, and a worker without it.
type environment struct {
	hub, worker, bare *stage.Server
	scheme            *runtime.Scheme
}

var shared = stage.ShareEnvironment(func(ctx context.Context, set *stage.Stage) (*environment, error) {
	e := &environment{hub: set.Hub, worker: set.Workers[0], bare: set.Workers[1], scheme: set.Scheme}
	return e, e.worker.Cluster.InstallCRDs(ctx, leaseCRD)
}, "worker", "bare")

func TestMain(m *testing.M) { shared.Main(m) }

// scene is a hub with one worker, and the reconciler of its lease, which the test calls. The test plays the agent.
type scene struct {
	*environment
	server *stage.Server
	// name of the WorkerCluster, and ID of the hub.
	name  v1alpha1.ClusterName
	hubID string
	clock *clocktesting.FakePassiveClock
	link  *link
	// options of the Keeper. A change counts from the next restart on.
	options    hublease.Options
	keeper     *hublease.Keeper
	reconciler reconcile.Reconciler
}

var scenes atomic.Int32

func newScene(t *testing.T) *scene {
	t.Helper()
	e := shared.Get(t)
	return e.newScene(t, e.worker, remote.Credentials{Config: e.worker.Cluster.Config, Fingerprint: "admin"})
}

func (e *environment) newScene(t *testing.T, server *stage.Server, credentials remote.Credentials) *scene {
	t.Helper()
	s := &scene{
		environment: e, server: server, clock: clocktesting.NewFakePassiveClock(time.Now()),
		name: v1alpha1.ClusterName(fmt.Sprintf("worker-%d", scenes.Add(1))),
	}
	s.hubID = "hub-of-" + string(s.name)
	check.Must(t, e.hub.Admin.Create(t.Context(), &v1alpha1.WorkerCluster{
		ObjectMeta: metav1.ObjectMeta{Name: string(s.name)},
		Spec: v1alpha1.WorkerClusterSpec{
			Connection: v1alpha1.Connection{KubeconfigPath: "/not/used"},
			Failover:   v1alpha1.WorkerFailover{FenceAfter: &metav1.Duration{Duration: fenceAfter}},
		},
	}))
	t.Cleanup(func() { check.Must(t, e.hub.Admin.Delete(context.Background(), s.workerCluster(t))) })
	fleet := s.newFleet(t)
	fleet.Ensure(s.name, credentials, server.ID)
	connection, _ := fleet.Get(s.name)
	eventually(t, "connection", func(g gomega.Gomega) {
		g.Expect(connection.Status().State).To(gomega.Equal(remote.Connected), connection.Status().Message)
	})
	s.link = &link{Cluster: connection, clock: s.clock, since: s.clock.Now()}
	s.options = hublease.Options{
		Hub: e.hub.Admin, HubReader: e.hub.Admin, HubID: s.hubID, Manager: "test", Margin: margin, Clock: s.clock,
	}
	s.restart()
	return s
}

func (s *scene) newFleet(t *testing.T) *remote.Fleet {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	fleet, err := remote.NewFleet(ctx, remote.Options{HubID: s.hubID, ProbeInterval: time.Second, Scheme: s.scheme})
	check.Must(t, err)
	t.Cleanup(func() {
		cancel()
		fleet.Wait()
	})
	return fleet
}

// restart starts a new process, which remembers nothing.
func (s *scene) restart() {
	s.keeper = hublease.NewKeeper(s.options)
	s.reconciler = s.keeper.For(s.name, s.link)
}

// link is a connection that uses the test's clock and that the test can cut.
type link struct {
	*remote.Cluster
	clock *clocktesting.FakePassiveClock
	since time.Time
	// lost is when contact was lost, zero during contact.
	lost time.Time
	// wrap, if set, wraps the client.
	wrap func(client.Client) client.Client
}

// Status implements hublease.Connection.
func (l *link) Status() remote.Status {
	status := l.Cluster.Status()
	if !l.lost.IsZero() {
		status.State, status.Since, status.LastSeen = remote.Unreachable, l.lost, l.lost
		return status
	}
	status.Since, status.LastSeen = l.since, l.clock.Now()
	return status
}

// Client implements hublease.Connection.
func (l *link) Client() (client.Client, error) {
	if !l.lost.IsZero() {
		return nil, remote.ErrNotConnected
	}
	c, err := l.Cluster.Client()
	if err == nil && l.wrap != nil {
		c = l.wrap(c)
	}
	return c, err
}

func (l *link) cut() { l.lost = l.clock.Now() }

func (l *link) mend() { l.lost, l.since = time.Time{}, l.clock.Now() }

// tamper is a client with a different Get or Patch.
type tamper struct {
	client.Client
	get   func(lease *v1alpha1.ExecutionLease) error
	patch func(write func() error) error
}

// Get implements client.Client.
func (c tamper) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if c.get != nil {
		return c.get(object.(*v1alpha1.ExecutionLease))
	}
	return c.Client.Get(ctx, key, object, opts...)
}

// Patch implements client.Client.
func (c tamper) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	write := func() error { return c.Client.Patch(ctx, object, patch, opts...) }
	if c.patch != nil {
		return c.patch(write)
	}
	return write()
}

// reconcile waits until the cache shows the lease, calls the reconciler, which must not fail, and waits again.
func (s *scene) reconcile(t *testing.T) reconcile.Result {
	t.Helper()
	s.settle(t)
	result, err := s.reconciler.Reconcile(t.Context(), reconcile.Request{})
	check.Must(t, err)
	s.settle(t)
	return result
}

// settle waits until the worker's cache shows the lease as it is now.
func (s *scene) settle(t *testing.T) {
	t.Helper()
	eventually(t, "worker's cache", func(g gomega.Gomega) {
		cached := &v1alpha1.ExecutionLease{}
		err := s.link.Cache().Get(t.Context(), client.ObjectKey{Name: s.hubID}, cached)
		g.Expect(client.IgnoreNotFound(err)).To(gomega.Succeed())
		g.Expect(cached.ResourceVersion).To(gomega.Equal(s.lease(t).ResourceVersion))
	})
}

// lease reads the lease from the worker. It is empty if there is none.
func (s *scene) lease(t *testing.T) *v1alpha1.ExecutionLease {
	t.Helper()
	lease := &v1alpha1.ExecutionLease{}
	check.Must(t, client.IgnoreNotFound(s.server.Admin.Get(t.Context(), client.ObjectKey{Name: s.hubID}, lease)))
	return lease
}

// challenge writes a challenge and a state, as the agent does.
func (s *scene) challenge(t *testing.T, challenge string, state v1alpha1.LeaseState) {
	t.Helper()
	lease := s.lease(t)
	lease.Status.Challenge, lease.Status.State = challenge, state
	lease.Status.Interval = &metav1.Duration{Duration: 10 * time.Second}
	check.Must(t, s.server.Admin.Status().Update(t.Context(), lease))
}

// live plays an agent that is alive and was answered at 0 s and at 10 s of the test.
func (s *scene) live(t *testing.T) {
	t.Helper()
	s.reconcile(t)
	for n := 1; n <= 2; n++ {
		s.challenge(t, fmt.Sprintf("1.%d", n), v1alpha1.LeaseValid)
		s.reconcile(t)
		if answer := s.lease(t).Spec.Answer; answer != fmt.Sprintf("1.%d", n) {
			t.Fatalf("the answer is %q, want 1.%d", answer, n)
		}
		if n == 1 {
			s.step(10 * time.Second)
		}
	}
}

func (s *scene) step(d time.Duration) { s.clock.SetTime(s.clock.Now().Add(d)) }

func (s *scene) workerCluster(t *testing.T) *v1alpha1.WorkerCluster {
	t.Helper()
	worker := &v1alpha1.WorkerCluster{}
	check.Must(t, s.hub.Admin.Get(context.WithoutCancel(t.Context()), client.ObjectKey{Name: string(s.name)}, worker))
	return worker
}

// ask changes the fenceAfter of the WorkerCluster.
func (s *scene) ask(t *testing.T, fenceAfter time.Duration) {
	t.Helper()
	worker := s.workerCluster(t)
	worker.Spec.Failover.FenceAfter.Duration = fenceAfter
	check.Must(t, s.hub.Admin.Update(t.Context(), worker))
}

// expectStopped checks how long from now copies must have stopped. A negative want: the time must not be known.
func (s *scene) expectStopped(t *testing.T, why string, want time.Duration) {
	t.Helper()
	at, known := s.keeper.Agents().StoppedAt(s.name, s.server.ID)
	if got := at.Sub(s.clock.Now()); known != (want >= 0) || known && got != want {
		t.Errorf("%s: copies are stopped in %s, known: %t; want %s", why, got, known, want)
	}
}

func (s *scene) expectPresence(t *testing.T, why string, want protocol.Presence) {
	t.Helper()
	if got, _ := s.keeper.Agents().Agent(s.name, s.server.ID); got != want {
		t.Errorf("%s: the agent is %s, want %s", why, got, want)
	}
}

var eventually = check.Within(patience, 5*time.Millisecond)
