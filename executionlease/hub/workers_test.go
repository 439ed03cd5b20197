// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/executionlease/protocol"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

// TestWorkersThatCannotFence: a worker without the API, or without the right, is Connected. The presence says why
// nothing is fenced there. It changes without a restart.
func TestWorkersThatCannotFence(t *testing.T) {
	worker, bare := shared.Get(t).Workers[0], shared.Get(t).Workers[1]
	t.Run("Unsupported", func(t *testing.T) {
		t.Parallel()
		s := newSceneWith(t, bare, remote.Credentials{Config: bare.Cluster.Config, Fingerprint: "admin"})
		s.until(t, protocol.PresenceUnsupported)
		check.Must(t, bare.Cluster.InstallCRDs(t.Context(), leaseCRD))
		s.until(t, protocol.PresenceUnknown)
		s.live(t)
		s.expectPresence(t, "with the API", protocol.PresenceAlive)
	})
	t.Run("Forbidden", func(t *testing.T) {
		t.Parallel()
		s := newSceneWith(t, worker, account(t, worker, "reader"))
		s.until(t, protocol.PresenceForbidden)
		if code := s.link.Status().LeaseRefusal; code != http.StatusForbidden {
			t.Errorf("the worker refuses with %d, want 403", code)
		}
		grant(t, worker, "reader", "list", "watch")
		gomega.NewWithT(t).Eventually(func() int { return s.link.Status().LeaseRefusal }, patience, 5*time.Millisecond).Should(gomega.BeZero())
		// The user may read now, so the lease is absent. The user may not create it.
		s.until(t, protocol.PresenceForbidden)
		grant(t, worker, "reader", "create", "patch")
		s.until(t, protocol.PresenceUnknown)
		s.live(t)
		s.expectPresence(t, "with the rights", protocol.PresenceAlive)
	})
}

// until reconciles until the agent has a presence.
func (s *scene) until(t *testing.T, want protocol.Presence) {
	t.Helper()
	eventually(t, "presence of the agent", func(g gomega.Gomega) {
		_, err := s.reconciler.Reconcile(t.Context(), reconcile.Request{})
		g.Expect(err).To(gomega.Succeed())
		presence, _ := s.keeper.Agents().Agent(s.name, s.server.ID)
		g.Expect(presence.String()).To(gomega.Equal(want.String()))
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
