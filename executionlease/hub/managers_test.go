// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/executionlease/protocol"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

// TestManagerRestart: a new leader believes a condition that was written for the current fenceAfter, and counts from
// when it became the leader.
func TestManagerRestart(t *testing.T) {
	cases := map[string]struct {
		reason string
		// status of AgentReady. generation is how far its observedGeneration is behind.
		status     metav1.ConditionStatus
		generation int64
		want       time.Duration
	}{
		"Alive":      {reason: "The process before may have answered until now.", status: metav1.ConditionTrue, want: 122 * time.Second},
		"Dead":       {reason: "There was no living agent.", status: metav1.ConditionFalse, want: -1},
		"NeverKnown": {reason: "Nobody has seen any agent.", want: -1},
		"Outdated":   {reason: "The agent may work by a longer fenceAfter.", status: metav1.ConditionTrue, generation: -1, want: -1},
	}
	s := newScene(t)
	s.link.cut()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			worker := s.WorkerCluster(t, s.name)
			worker.Status = v1alpha1.WorkerClusterStatus{ClusterID: s.server.ID}
			if tc.status != "" {
				apimeta.SetStatusCondition(&worker.Status.Conditions, metav1.Condition{
					Type: v1alpha1.WorkerClusterAgentReady, Status: tc.status, Reason: "Because", ObservedGeneration: worker.Generation + tc.generation,
				})
			}
			check.Must(t, s.Hub.Admin.Status().Update(t.Context(), worker))
			s.restart()
			s.expectStopped(t, "before it leads", -1)
			check.Must(t, s.answerer.Start(t.Context()))
			s.reconcile(t)
			s.expectStopped(t, tc.reason, tc.want)
			s.Clock.Step(time.Minute)
			if tc.want >= 0 {
				s.expectStopped(t, "it counts from when it became the leader", tc.want-time.Minute)
			}
		})
	}
}

// TestManagerRestartWithContact: after a restart of the manager, the next challenge shows that the agent is alive.
func TestManagerRestartWithContact(t *testing.T) {
	s := newScene(t)
	s.live(t)
	s.restart()
	before := s.lease(t)
	s.reconcile(t)
	s.expectAgent(t, "a challenge of unknown age", protocol.AgentUnknown)
	if _, ok := s.answerer.Agents().Valid(s.name, s.server.ID); ok {
		t.Error("a challenge of unknown age is said to be valid")
	}
	check.Equal(t, before.ResourceVersion, s.lease(t).ResourceVersion, "the restart has cost a write")
	s.Clock.Step(10 * time.Second)
	s.challenge(t, "1.3", v1alpha1.LeaseValid)
	s.reconcile(t)
	s.expectAgent(t, "the next challenge", protocol.AgentAlive)
	s.expectStopped(t, "the next challenge", 122*time.Second)
}

// TestTwoManagers: an old leader was stopped and goes on. Its answer to an old challenge does no harm, and it answers
// nothing once it knows that it does not lead.
func TestTwoManagers(t *testing.T) {
	s := newScene(t)
	s.live(t)
	old, stale := s.reconciler, s.lease(t)
	stale.Spec.Answer = "1.1"
	s.restart()
	s.challenge(t, "1.3", v1alpha1.LeaseValid)
	s.reconcile(t)
	s.ask(t, 50*time.Second)
	s.challenge(t, "1.4", v1alpha1.LeaseValid)
	s.reconcile(t)
	before := s.lease(t)

	s.link.wrap = func(c client.Client) client.Client {
		return tamper{Client: c, get: func(lease *v1alpha1.ExecutionLease) error {
			stale.DeepCopyInto(lease)
			return nil
		}}
	}
	result, err := old.Reconcile(t.Context(), reconcile.Request{})
	check.Must(t, err)
	s.link.wrap = nil
	if diff := cmp.Diff(before, s.lease(t)); diff != "" || result.RequeueAfter <= 0 {
		t.Errorf("a manager that was stopped has changed the lease, or does not look again (%s):\n%s", result.RequeueAfter, diff)
	}

	s.options.Leading = func() bool { return false }
	s.restart()
	s.challenge(t, "1.5", v1alpha1.LeaseValid)
	s.reconcile(t)
	check.Equal(t, "1.4", s.lease(t).Spec.Answer, "an answer by a manager that does not lead")
	check.Must(t, s.server.Admin.Delete(t.Context(), s.lease(t)))
	s.reconcile(t)
	check.Equal(t, "", s.lease(t).Name, "a lease was created by a manager that does not lead")
}

// TestWorkersThatCannotFence: a worker without the API, or without the right, is Connected. The state of the agent says
// why nothing is fenced there. It changes without a restart.
func TestWorkersThatCannotFence(t *testing.T) {
	worker, bare := shared.Get(t).Workers[0], shared.Get(t).Workers[1]
	t.Run("Unsupported", func(t *testing.T) {
		t.Parallel()
		s := newSceneWith(t, bare, remote.Credentials{Config: bare.Cluster.Config, Fingerprint: "admin"})
		s.until(t, protocol.AgentUnsupported)
		check.Must(t, bare.Cluster.InstallCRDs(t.Context(), leaseCRD))
		s.until(t, protocol.AgentUnknown)
		s.live(t)
		s.expectAgent(t, "with the API", protocol.AgentAlive)
	})
	t.Run("Forbidden", func(t *testing.T) {
		t.Parallel()
		s := newSceneWith(t, worker, account(t, worker, "reader"))
		s.until(t, protocol.AgentForbidden)
		check.Equal(t, http.StatusForbidden, s.link.Status().LeaseRefusal, "the worker refuses with")
		grant(t, worker, "reader", "list", "watch")
		gomega.NewWithT(t).Eventually(func() int { return s.link.Status().LeaseRefusal }, patience, 5*time.Millisecond).Should(gomega.BeZero())
		// The user may read now, so the lease is absent. The user may not create it.
		s.until(t, protocol.AgentForbidden)
		grant(t, worker, "reader", "create", "patch")
		s.until(t, protocol.AgentUnknown)
		s.live(t)
		s.expectAgent(t, "with the rights", protocol.AgentAlive)
	})
}

// until reconciles until the agent has a state.
func (s *scene) until(t *testing.T, want protocol.AgentState) {
	t.Helper()
	eventually(t, "state of the agent", func(g gomega.Gomega) {
		_, err := s.reconciler.Reconcile(t.Context(), reconcile.Request{})
		g.Expect(err).To(gomega.Succeed())
		state, _ := s.answerer.Agents().Agent(s.name, s.server.ID)
		g.Expect(state.String()).To(gomega.Equal(want.String()))
	})
}

// account makes a user of the worker with all rights that a connection needs.
func account(t *testing.T, worker *stage.Server, name string) remote.Credentials {
	t.Helper()
	return stage.Account(t, worker.Cluster, name, rbacv1.PolicyRule{
		APIGroups: []string{"", "trainer.kubeflow.org", "jobset.x-k8s.io"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"},
	})
}

func grant(t *testing.T, worker *stage.Server, user string, verbs ...string) {
	t.Helper()
	stage.Grant(t, worker.Cluster, user+"-"+verbs[0], user, rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"executionleases"}, Verbs: verbs,
	})
}
