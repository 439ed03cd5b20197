// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	patience = check.Patience
	// margin and fenceAfter of most tests give 122 s from read to stopped.
	margin     = 20 * time.Second
	fenceAfter = 100 * time.Second
)

// The first worker has the ExecutionLease API, and the second does not.
var shared = stage.Share(func(ctx context.Context, s *stage.Stage) error {
	return s.Workers[0].Cluster.InstallCRDs(ctx, leaseCRD)
}, "worker", "bare")

func TestMain(m *testing.M) { shared.Main(m) }

// scene is a hub with one worker, and the reconciler of its lease, which the test calls. The test plays the agent.
type scene struct {
	*stage.Scene
	server *stage.Server
	// name of the WorkerCluster, and ID of the hub.
	name  v1alpha1.ClusterName
	hubID string
	link  *link
	// options of the Answerer. A change counts from the next restart on.
	options    hublease.Options
	answerer   *hublease.Answerer
	reconciler reconcile.Reconciler
}

func newScene(t *testing.T) *scene {
	t.Helper()
	worker := shared.Get(t).Worker("worker")
	return newSceneWith(t, worker, remote.Credentials{Config: worker.Cluster.Config, Fingerprint: "admin"})
}

func newSceneWith(t *testing.T, server *stage.Server, credentials remote.Credentials) *scene {
	t.Helper()
	s := &scene{Scene: shared.Get(t).Scene(t), server: server}
	s.name = v1alpha1.ClusterName("worker-of-" + s.Namespace)
	s.hubID = "hub-of-" + s.Namespace
	s.Register(t, s.name, func(worker *v1alpha1.WorkerCluster) {
		worker.Spec.Failover.FenceAfter, worker.Status = &metav1.Duration{Duration: fenceAfter}, v1alpha1.WorkerClusterStatus{}
	})
	fleet := stage.StartFleet(t, remote.Options{HubID: s.hubID, Scheme: s.Scheme})
	fleet.Ensure(s.name, credentials, server.ID)
	connection, _ := fleet.Get(s.name)
	stage.AwaitConnected(t, connection)
	s.link = &link{Cluster: connection, clock: s.Clock, since: s.Clock.Now()}
	s.options = hublease.Options{
		Hub: s.Hub.Admin, HubReader: s.Hub.Admin, HubID: s.hubID, Manager: "test", Margin: margin, Clock: s.Clock,
	}
	s.restart()
	return s
}

// restart starts a new process, which remembers nothing.
func (s *scene) restart() {
	s.answerer = hublease.NewAnswerer(s.options)
	s.reconciler = s.answerer.For(s.name, s.link)
}

// link is a connection that uses the test's clock and that the test can cut.
type link struct {
	*remote.Cluster
	clock *clocktesting.FakeClock
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
			s.Clock.Step(10 * time.Second)
		}
	}
}

// ask changes the fenceAfter of the WorkerCluster.
func (s *scene) ask(t *testing.T, fenceAfter time.Duration) {
	t.Helper()
	s.ChangeWorker(t, s.name, func(worker *v1alpha1.WorkerCluster) { worker.Spec.Failover.FenceAfter.Duration = fenceAfter })
}

// expectStopped checks how long from now copies must have stopped. A negative want: the time must not be known.
func (s *scene) expectStopped(t *testing.T, why string, want time.Duration) {
	t.Helper()
	at, known := s.answerer.Agents().StoppedAt(s.name, s.server.ID)
	if got := at.Sub(s.Clock.Now()); known != (want >= 0) || known && got != want {
		t.Errorf("%s: copies are stopped in %s, known: %t; want %s", why, got, known, want)
	}
}

func (s *scene) expectAgent(t *testing.T, why string, want protocol.AgentState) {
	t.Helper()
	if got, _ := s.answerer.Agents().Agent(s.name, s.server.ID); got != want {
		t.Errorf("%s: the agent is %s, want %s", why, got, want)
	}
}

var eventually = check.Within(patience, 5*time.Millisecond)
