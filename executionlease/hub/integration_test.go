// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	hublease "github.com/trainyard/trainyard/executionlease/hub"
	"github.com/trainyard/trainyard/executionlease/protocol"
	"github.com/trainyard/trainyard/internal/perworker"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

// TestChallengesAreAnsweredAtOnce: the lease comes with the worker. Each challenge gets one write, at once.
func TestChallengesAreAnsweredAtOnce(t *testing.T) {
	s := newScene(t)
	s.options.Clock = clock.RealClock{}
	s.answerer = hublease.NewAnswerer(s.options)
	keys := s.run(t)
	eventually(t, "lease", func(g gomega.Gomega) { g.Expect(s.lease(t).Name).To(gomega.Equal(s.hubID)) })
	if got := s.lease(t).Spec; got.FenceAfter.Duration != fenceAfter || got.Manager != "test" || got.Answer != "" {
		t.Errorf("new lease: %+v", got)
	}
	const count = 5
	for n := 1; n <= count; n++ {
		challenge := fmt.Sprintf("1.%d", n)
		s.challenge(t, challenge, v1alpha1.LeaseValid)
		eventually(t, "answer", func(g gomega.Gomega) { g.Expect(s.lease(t).Spec.Answer).To(gomega.Equal(challenge)) })
	}
	settled := s.lease(t)
	// The generation counts writes of the spec. The agent does not write the spec.
	if settled.Generation != 1+count {
		t.Errorf("%d writes, want one for the lease and one for each of %d challenges", settled.Generation, count)
	}
	gomega.NewWithT(t).Consistently(func() string { return s.lease(t).ResourceVersion }, time.Second).Should(
		gomega.Equal(settled.ResourceVersion), "nothing is written when nothing changes")
	if got := s.patches(t); got != count {
		t.Errorf("%v patches for %d challenges", got, count)
	}
	if got := keys.list(); len(got) != 1 || got[0].Name != s.hubID {
		t.Errorf("keys %v, want the lease only: answers do not wait behind jobs", got)
	}
}

func (s *scene) patches(t *testing.T) float64 {
	t.Helper()
	sum, _ := s.metric(t, "trainyard_worker_requests_total", "verb", "patch")
	return sum
}

// metric returns the sum of a metric of the worker, and whether it has a value. If key is given, only values with that
// label count.
func (s *scene) metric(t *testing.T, name, key, value string) (sum float64, found bool) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	check.Must(t, err)
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, pair := range m.GetLabel() {
				labels[pair.GetName()] = pair.GetValue()
			}
			if labels["cluster"] == string(s.name) && labels[key] == value {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
				found = true
			}
		}
	}
	return sum, found
}

// TestMetrics: an operator sees how old the last challenge is, how many were answered, and the state of the agent.
func TestMetrics(t *testing.T) {
	s := newScene(t)
	s.live(t)
	s.Clock.Step(35 * time.Second)
	for name, want := range map[string]float64{
		"trainyard_execution_lease_answers_total": 2, "trainyard_execution_lease_challenge_age_seconds": 35,
	} {
		if got, _ := s.metric(t, name, "", ""); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for state, want := range map[protocol.AgentState]float64{protocol.AgentSilent: 1, protocol.AgentAlive: 0} {
		if got, found := s.metric(t, "trainyard_execution_lease_agent", "presence", state.String()); got != want || !found {
			t.Errorf("an agent that writes nothing for 35 s: %s is %v, want %v", state, got, want)
		}
	}
	s.restart()
	if _, found := s.metric(t, "trainyard_execution_lease_challenge_age_seconds", "", ""); found {
		t.Error("the last challenge has an age before one was read")
	}
}

// keyring records the keys with which a reconciler was called.
type keyring struct {
	reconcile.Reconciler
	mu   sync.Mutex
	keys []types.NamespacedName
}

// Reconcile implements reconcile.Reconciler.
func (k *keyring) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	k.mu.Lock()
	if !slices.Contains(k.keys, request.NamespacedName) {
		k.keys = append(k.keys, request.NamespacedName)
	}
	k.mu.Unlock()
	return k.Reconciler.Reconcile(ctx, request)
}

func (k *keyring) list() []types.NamespacedName {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.keys)
}

// run starts what a manager has: a cache of the hub and the per-worker controllers. The worker joins, and has a copy.
func (s *scene) run(t *testing.T) *keyring {
	t.Helper()
	job := trainjobs.New()
	job.SetNamespace(metav1.NamespaceDefault)
	job.SetName("job")
	job.SetLabels(map[string]string{v1alpha1.LabelHub: s.hubID})
	job.Object["spec"] = map[string]any{"runtimeRef": map[string]any{"name": "any"}}
	check.Must(t, s.server.Admin.Create(t.Context(), job))
	eventually(t, "copy in the cache", func(g gomega.Gomega) {
		g.Expect(s.link.Cache().Get(t.Context(), client.ObjectKeyFromObject(job), trainjobs.New())).To(gomega.Succeed())
	})
	keys := &keyring{}
	mgr := s.NewManager(t, s.Hub.Cluster.Config)
	set := perworker.NewSet(mgr.GetCache(), logr.Discard(), perworker.Kind[*remote.Cluster]{
		Name: "executionlease", Concurrency: 1, Apart: true,
		Sources: func(_ v1alpha1.ClusterName, of cache.Cache) []source.Source {
			return []source.Source{s.answerer.Events(of)}
		},
		New: func(_ context.Context, worker v1alpha1.ClusterName, connection *remote.Cluster, _ func() bool) (reconcile.Reconciler, error) {
			keys.Reconciler = s.answerer.For(worker, connection)
			return keys, nil
		},
	})
	check.Must(t, mgr.Add(set))
	stage.RunFor(t, mgr)
	check.Must(t, set.Join(s.name, s.link.Cluster))
	return keys
}

// TestFenceAfterIsFollowed: the next answer carries a new fenceAfter. A longer one counts as soon as it may have been
// sent, and until the answers that carried it are too old.
func TestFenceAfterIsFollowed(t *testing.T) {
	s := newScene(t)
	s.live(t)
	s.expectStopped(t, "answered now", 122*time.Second)

	s.ask(t, 1000*time.Second)
	s.reconcile(t)
	s.expectStopped(t, "lengthened, and no challenge to answer", 122*time.Second)
	s.challenge(t, "1.3", v1alpha1.LeaseValid)
	s.reconcile(t)
	s.expectStopped(t, "lengthened", 1040*time.Second)
	if got := s.lease(t).Spec; got.FenceAfter.Duration != 1000*time.Second || got.Answer != "1.3" {
		t.Errorf("lease %+v, want the longer one with the answer", got)
	}

	s.ask(t, 10*time.Second)
	s.Clock.Step(10 * time.Second)
	s.challenge(t, "1.4", v1alpha1.LeaseValid)
	s.reconcile(t)
	s.expectStopped(t, "shortened, but the agent may not have seen that", 1030*time.Second)
	if got := s.lease(t).Spec; got.FenceAfter.Duration != 10*time.Second || got.Answer != "1.4" {
		t.Errorf("lease %+v, want the shorter one with the answer", got)
	}
	if _, longest := s.answerer.Agents().Agent(s.name, s.server.ID); longest != 1000*time.Second {
		t.Errorf("the agent works by %s at most, want the longer one", longest)
	}
	s.Clock.Step(1031 * time.Second)
	s.challenge(t, "1.5", v1alpha1.LeaseValid)
	s.reconcile(t)
	s.expectStopped(t, "long after it was shortened", 30200*time.Millisecond)
}

// TestContactLost: without contact, StoppedAt counts from the last read of a challenge that may have been answered.
func TestContactLost(t *testing.T) {
	s := newScene(t)
	s.live(t)
	s.Clock.Step(10 * time.Second)
	s.challenge(t, "1.3", v1alpha1.LeaseValid)
	s.settle(t)
	s.link.cut()
	s.reconcile(t)
	s.expectStopped(t, "the last challenge was not answered any more", 112*time.Second)
	s.expectAgent(t, "contact lost", protocol.AgentAlive)
	check.Equal(t, "1.2", s.lease(t).Spec.Answer, "an answer without contact")
	s.Clock.Step(time.Hour)
	s.reconcile(t)
	s.expectAgent(t, "an hour without contact", protocol.AgentAlive)
	if at, known := s.answerer.Agents().StoppedAt(s.name, s.server.ID); !known || !at.Equal(s.link.lost.Add(112*time.Second)) {
		t.Errorf("stopped at %s, known: %t; want it not to move", at, known)
	}
	if _, known := s.answerer.Agents().StoppedAt(s.name, "another-cluster"); known {
		t.Error("it is known when copies have stopped on a cluster of which nothing is known")
	}
	s.link.mend()
	s.reconcile(t)
	s.expectStopped(t, "contact is back", 122*time.Second)
}

// TestValid: without contact a challenge becomes too old for new copies. Subscribers are told of the next one.
func TestValid(t *testing.T) {
	s := newScene(t)
	s.live(t)
	valid := func(why, want string) {
		t.Helper()
		if challenge, ok := s.answerer.Agents().Valid(s.name, s.server.ID); ok != (want != "") || ok && challenge != want {
			t.Errorf("%s: %q, valid: %t; want %q", why, challenge, ok, want)
		}
	}
	valid("answered", "1.2")
	s.link.cut()
	s.Clock.Step(time.Hour)
	valid("an hour later", "")
	told := 0
	defer s.answerer.Agents().Subscribe(func(v1alpha1.ClusterName) { told++ })()
	s.link.mend()
	s.challenge(t, "1.3", v1alpha1.LeaseValid)
	s.reconcile(t)
	valid("contact is back", "1.3")
	if told == 0 {
		t.Error("nobody was told")
	}
	told = 0
	s.Clock.Step(10 * time.Second)
	s.challenge(t, "1.4", v1alpha1.LeaseValid)
	s.reconcile(t)
	valid("answered again", "1.4")
	if told != 0 {
		t.Errorf("told %d times that nothing has changed", told)
	}
}

// TestNotedBeforeItIsSent: an answer may arrive although its request fails, so it is recorded before it is sent.
func TestNotedBeforeItIsSent(t *testing.T) {
	s := newScene(t)
	s.live(t)
	s.Clock.Step(10 * time.Second)
	s.challenge(t, "1.3", v1alpha1.LeaseValid)
	s.settle(t)
	lost := errors.New("no answer in time")
	s.link.wrap = func(c client.Client) client.Client {
		return tamper{Client: c, patch: func(write func() error) error {
			s.expectStopped(t, "while it is sent", 122*time.Second)
			return errors.Join(write(), lost)
		}}
	}
	if _, err := s.reconciler.Reconcile(t.Context(), reconcile.Request{}); !errors.Is(err, lost) {
		t.Errorf("reconcile: %v, want that it is tried again", err)
	}
	s.expectStopped(t, "nobody knows what became of it", 122*time.Second)
	if challenge, ok := s.answerer.Agents().Valid(s.name, s.server.ID); !ok || challenge != "1.2" {
		t.Errorf("valid: %q, %t, want 1.2, of which it is known that it was answered", challenge, ok)
	}
	s.link.wrap = nil
	before := s.lease(t).Generation
	s.reconcile(t)
	if challenge, _ := s.answerer.Agents().Valid(s.name, s.server.ID); challenge != "1.3" || s.lease(t).Generation != before {
		t.Errorf("valid: %q, %d writes more, want to see that it has arrived", challenge, s.lease(t).Generation-before)
	}
}

// TestAgentFallsSilent: an agent that writes no challenges during contact is not alive, and subscribers are told.
func TestAgentFallsSilent(t *testing.T) {
	s := newScene(t)
	var told []protocol.AgentState
	cancel := s.answerer.Agents().Subscribe(func(name v1alpha1.ClusterName) {
		state, _ := s.answerer.Agents().Agent(name, s.server.ID)
		if name == s.name && (len(told) == 0 || told[len(told)-1] != state) {
			told = append(told, state)
		}
	})
	s.reconcile(t)
	s.expectAgent(t, "a lease that nobody has written into", protocol.AgentUnknown)
	s.Clock.Step(31 * time.Second)
	s.reconcile(t)
	s.expectAgent(t, "nobody writes into it", protocol.AgentAbsent)
	s.live(t)
	s.expectAgent(t, "challenges come", protocol.AgentAlive)
	s.Clock.Step(30 * time.Second)
	s.reconcile(t)
	s.expectAgent(t, "three intervals", protocol.AgentAlive)
	s.Clock.Step(time.Second)
	result := s.reconcile(t)
	s.expectAgent(t, "more than that", protocol.AgentSilent)
	s.expectStopped(t, "nobody stops them", -1)
	if _, ok := s.answerer.Agents().Valid(s.name, s.server.ID); ok {
		t.Error("copies are said to be run by a silent agent")
	}
	if result.RequeueAfter <= 0 {
		t.Error("nobody looks whether the agent comes back")
	}
	s.link.cut()
	s.Clock.Step(time.Hour)
	s.expectStopped(t, "nor while the worker is away", -1)
	s.link.mend()
	s.challenge(t, "2.1", v1alpha1.LeasePending)
	s.reconcile(t)
	s.expectAgent(t, "another run", protocol.AgentAlive)
	if challenge, ok := s.answerer.Agents().Valid(s.name, s.server.ID); ok {
		t.Errorf("%q is said to be valid, but the agent has not said so yet", challenge)
	}
	cancel()
	s.Clock.Step(time.Hour)
	s.reconcile(t)
	want := []protocol.AgentState{
		protocol.AgentUnknown, protocol.AgentAbsent, protocol.AgentAlive, protocol.AgentSilent, protocol.AgentAlive,
	}
	check.Diff(t, want[1:], slices.DeleteFunc(told, func(p protocol.AgentState) bool { return p == protocol.AgentUnknown }),
		"what subscribers are told")
}
