// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
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
	user := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	check.Must(t, worker.Admin.Create(t.Context(), user))
	grantRules(t, worker, name, name, rbacv1.PolicyRule{
		APIGroups: []string{"", "trainer.kubeflow.org", "jobset.x-k8s.io"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"},
	})
	token := &authenticationv1.TokenRequest{}
	check.Must(t, worker.Admin.SubResource("token").Create(t.Context(), user, token))
	return remote.Credentials{Fingerprint: name, Config: &rest.Config{
		Host: worker.Cluster.Config.Host, BearerToken: token.Status.Token, TLSClientConfig: rest.TLSClientConfig{
			CAData: worker.Cluster.Config.CAData, ServerName: worker.Cluster.Config.ServerName,
		},
	}}
}

func grant(t *testing.T, worker *stage.Server, user string, verbs ...string) {
	t.Helper()
	grantRules(t, worker, user+"-"+verbs[0], user, rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"executionleases"}, Verbs: verbs,
	})
}

func grantRules(t *testing.T, worker *stage.Server, name, user string, rule rbacv1.PolicyRule) {
	t.Helper()
	check.Must(t, worker.Admin.Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule},
	}))
	check.Must(t, worker.Admin.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: user}},
	}))
}
