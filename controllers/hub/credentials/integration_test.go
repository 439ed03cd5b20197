// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/credentials"
	"github.com/trainyard/trainyard/kubeconfigs"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

const (
	namespace = stage.SystemNamespace
	account   = "trainyard-hub"
	patience  = check.Patience
	day       = 24 * time.Hour
)

// The worker has what config/worker has for the hub's account.
var shared = stage.Share(func(ctx context.Context, s *stage.Stage) error {
	return errors.Join(s.InstallConfig(ctx, "namespace"),
		s.Workers[0].Cluster.ApplyFiles(ctx, "../../../config/namespace/namespace.yaml"), s.Workers[0].Cluster.ApplyFiles(ctx, "../../../config/worker"))
}, "east")

func TestMain(m *testing.M) { shared.Main(m) }

// scene is a registered worker with a token of ten minutes, the shortest that an API server gives.
type scene struct {
	*stage.Scene
	worker     *stage.Server
	name       string
	loader     *kubeconfigs.Loader
	reconciler *credentials.Reconciler
	// bound is the Secret of the worker to which the token is bound.
	bound *corev1.Secret
}

func newScene(t *testing.T, labels map[string]string) *scene {
	t.Helper()
	s := &scene{Scene: shared.Get(t).Scene(t)}
	s.worker, s.name = s.Workers[0], s.Namespace
	s.loader = &kubeconfigs.Loader{Reader: s.Hub.Admin, Namespace: namespace, Clock: s.Clock}
	s.reconciler = credentials.NewReconciler(credentials.Options{Hub: s.Hub.Admin, Loader: s.loader, Clock: s.Clock})
	s.bound = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.name}}
	check.Must(t, s.worker.Admin.Create(t.Context(), s.bound))
	kubeconfig, err := s.worker.Cluster.KubeconfigBytes()
	check.Must(t, err)
	config, err := clientcmd.Load(kubeconfig)
	check.Must(t, err)
	user := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo]
	user.ClientCertificateData, user.ClientKeyData, user.Token = nil, nil, s.token(t)
	kubeconfig, err = clientcmd.Write(*config)
	check.Must(t, err)
	s.register(t, s.name, labels, map[string][]byte{kubeconfigs.SecretKey: kubeconfig})
	return s
}

// register creates a WorkerCluster and its Secret.
func (s *scene) register(t *testing.T, name string, labels map[string]string, data map[string][]byte) {
	t.Helper()
	s.Hub.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Data: data})
	s.Register(t, v1alpha1.ClusterName(name), stage.FromSecret)
}

var managed = map[string]string{v1alpha1.LabelRenew: v1alpha1.RenewToken}

func (s *scene) token(t *testing.T) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To[int64](600),
		BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Secret", APIVersion: "v1", Name: s.bound.Name, UID: s.bound.UID},
	}}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	check.Must(t, s.worker.Admin.SubResource("token").Create(t.Context(), of, request))
	return request.Status.Token
}

func (s *scene) secret(t *testing.T) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	check.Must(t, s.Hub.Admin.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: s.name}, secret))
	return secret
}

func (s *scene) reconcile(t *testing.T) reconcile.Result {
	t.Helper()
	result, err := s.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: s.name}})
	check.Must(t, err)
	return result
}

// expiring returns reason and message of CredentialsExpiring, or nothing.
func (s *scene) expiring(t *testing.T) (reason, message string) {
	t.Helper()
	worker := s.WorkerCluster(t, v1alpha1.ClusterName(s.name))
	if c := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterCredentialsExpiring); c != nil {
		return c.Reason, c.Message
	}
	return "", ""
}

func (s *scene) load(t *testing.T) *kubeconfigs.Credentials {
	t.Helper()
	loaded, err := s.loader.Load(t.Context(), v1alpha1.Connection{KubeconfigSecretRef: &v1alpha1.SecretReference{Name: s.name}})
	check.Must(t, err)
	return loaded
}

// TestTokenIsRenewed renews a token under a connection that is in use: no request fails, and the connection stays.
func TestTokenIsRenewed(t *testing.T) {
	s := newScene(t, managed)
	before := s.secret(t)
	if due := s.reconcile(t).RequeueAfter; due < 3*time.Minute || due > 5*time.Minute {
		t.Errorf("a token of ten minutes is looked at again after %s", due)
	}
	check.Equal(t, before.ResourceVersion, s.secret(t).ResourceVersion, "a fresh token was renewed")
	fleet := stage.StartFleet(t, remote.Options{})
	var mu sync.Mutex
	var left []string
	connected := false
	fleet.Subscribe(func(_ v1alpha1.ClusterName, status remote.Status) {
		mu.Lock()
		defer mu.Unlock()
		connected = connected || status.State == remote.Connected
		if connected && status.State != remote.Connected && status.State != remote.Closed {
			left = append(left, status.State.String()+": "+status.Message)
		}
	})
	ensure := func() string {
		loaded := s.load(t)
		fleet.Ensure("east", remote.Credentials{Config: loaded.Config, Fingerprint: loaded.Fingerprint}, s.worker.ID)
		return loaded.Fingerprint
	}
	inUse := func(fingerprint string) {
		cluster, _ := fleet.Get("east")
		gomega.NewWithT(t).Eventually(func() remote.Status { return cluster.Status() }, patience, 10*time.Millisecond).Should(
			gomega.SatisfyAll(gomega.HaveField("State", remote.Connected), gomega.HaveField("Fingerprint", fingerprint)))
	}
	old := ensure()
	inUse(old)
	s.Clock.SetTime(s.Clock.Now().Add(6 * time.Minute))
	s.reconcile(t)
	after := s.secret(t)
	requests := make(chan error, 1)
	go func() { requests <- s.request(t.Context(), fleet, 200) }()
	fresh := ensure()
	if fresh == old {
		t.Fatal("the token was not renewed")
	}
	inUse(fresh)
	check.Must(t, <-requests)
	mu.Lock()
	defer mu.Unlock()
	if len(left) > 0 {
		t.Errorf("the connection was interrupted: %q", left)
	}
	if len(after.Data) != 1 || after.Labels[v1alpha1.LabelRenew] != v1alpha1.RenewToken {
		t.Errorf("the Secret has become %v", after.ObjectMeta)
	}
	token, err := kubeconfigs.ParseServiceAccountToken(s.load(t).Config.BearerToken)
	check.Must(t, err)
	if token.SecretUID != s.bound.UID || token.Expires.Sub(token.Issued) != 10*time.Minute {
		t.Errorf("the new token is %+v, want one like the old", token)
	}
	if reason, message := s.expiring(t); reason != "" {
		t.Errorf("the worker says %s: %s", reason, message)
	}
}

// request reads from a worker again and again.
func (s *scene) request(ctx context.Context, fleet *remote.Fleet, times int) error {
	cluster, _ := fleet.Get("east")
	for range times {
		reader, err := cluster.APIReader()
		if err != nil {
			return err
		}
		if err := reader.List(ctx, &corev1.NodeList{}); err != nil {
			return err
		}
	}
	return nil
}

// TestAdminsKubeconfig checks that a kubeconfig without the label is reported, and never written.
func TestAdminsKubeconfig(t *testing.T) {
	s := newScene(t, nil)
	before := s.secret(t)
	s.reconcile(t)
	if reason, _ := s.expiring(t); reason != "" {
		t.Errorf("a token with ten minutes left of ten is %s", reason)
	}
	s.Clock.SetTime(s.Clock.Now().Add(9 * time.Minute))
	s.reconcile(t)
	reason, message := s.expiring(t)
	if reason != v1alpha1.ReasonExpiresSoon || !strings.Contains(message, "kubectl trainyard join "+s.name) {
		t.Errorf("the worker says %q: %q", reason, message)
	}
	check.Equal(t, before.ResourceVersion, s.secret(t).ResourceVersion, "the Secret of an admin was written")
}

// TestRenewalIsRefused takes the right to renew away while a renewal is due, and gives it back.
func TestRenewalIsRefused(t *testing.T) {
	s := newScene(t, managed)
	before := s.secret(t)
	binding := &rbacv1.RoleBinding{}
	key := types.NamespacedName{Namespace: namespace, Name: account}
	check.Must(t, s.worker.Admin.Get(t.Context(), key, binding))
	check.Must(t, s.worker.Admin.Delete(t.Context(), binding))
	restore := func() {
		again := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}, RoleRef: binding.RoleRef, Subjects: binding.Subjects}
		check.Must(t, client.IgnoreAlreadyExists(s.worker.Admin.Create(context.Background(), again)))
	}
	t.Cleanup(restore)
	s.Clock.SetTime(s.Clock.Now().Add(6 * time.Minute))
	gomega.NewWithT(t).Eventually(func() string { // The worker's authorizer sees the change a moment later.
		again := s.reconcile(t).RequeueAfter
		reason, message := s.expiring(t)
		if reason == v1alpha1.ReasonRenewalFailed && again != time.Minute {
			t.Errorf("the next try is after %s", again)
		}
		if reason == "" {
			check.Must(t, s.Hub.Admin.Update(context.Background(), withData(s.secret(t), before.Data)))
		}
		return reason + message
	}, patience, 50*time.Millisecond).Should(gomega.SatisfyAll(
		gomega.HavePrefix(v1alpha1.ReasonRenewalFailed), gomega.ContainSubstring("forbidden"), gomega.ContainSubstring("kubectl trainyard join")))
	kept := s.secret(t)
	check.Equal(t, string(before.Data[kubeconfigs.SecretKey]), string(kept.Data[kubeconfigs.SecretKey]),
		"the old token is gone, and there is no new one")
	restore()
	gomega.NewWithT(t).Eventually(func() string {
		s.reconcile(t)
		reason, _ := s.expiring(t)
		return reason
	}, patience, 50*time.Millisecond).Should(gomega.BeEmpty(), "the token is renewed when the right is back")
	if after := s.secret(t); string(after.Data[kubeconfigs.SecretKey]) == string(before.Data[kubeconfigs.SecretKey]) {
		t.Error("the token was not renewed")
	}
}

func withData(secret *corev1.Secret, data map[string][]byte) *corev1.Secret {
	secret.Data = data
	return secret
}

// TestRevokedTokenCannotRenewItself deletes the Secret on the worker to which the token is bound.
func TestRevokedTokenCannotRenewItself(t *testing.T) {
	s := newScene(t, managed)
	check.Must(t, s.worker.Admin.Delete(t.Context(), s.bound))
	s.Clock.SetTime(s.Clock.Now().Add(6 * time.Minute))
	s.reconcile(t)
	reason, message := s.expiring(t)
	if reason != v1alpha1.ReasonRenewalFailed || !strings.Contains(message, "Unauthorized") {
		t.Errorf("the worker says %q: %q", reason, message)
	}
}
