// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials_test

import (
	"context"
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
	clocktesting "k8s.io/utils/clock/testing"
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
	namespace = "trainyard-system"
	account   = "trainyard-hub"
	patience  = time.Minute
	day       = 24 * time.Hour
)

var shared = stage.ShareEnvironment(prepare, "east")

func TestMain(m *testing.M) { shared.Main(m) }

// prepare gives the worker what config/worker has for the hub's account.
func prepare(ctx context.Context, set *stage.Stage) (*stage.Stage, error) {
	for _, server := range []*stage.Server{set.Hub, set.Workers[0]} {
		if err := server.Cluster.ApplyFiles(ctx, "../../../config/namespace/namespace.yaml"); err != nil {
			return set, err
		}
	}
	return set, set.Workers[0].Cluster.ApplyFiles(ctx, "../../../config/worker")
}

// scene is a registered worker with a token of ten minutes, the shortest that an API server gives.
type scene struct {
	*stage.Stage
	*testing.T
	name       string
	clock      *clocktesting.FakePassiveClock
	loader     *kubeconfigs.Loader
	reconciler *credentials.Reconciler
	// bound is the Secret of the worker to which the token is bound.
	bound *corev1.Secret
}

func newScene(t *testing.T, labels map[string]string) *scene {
	t.Helper()
	s := &scene{Stage: shared.Get(t), T: t, name: strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")), clock: clocktesting.NewFakePassiveClock(time.Now())}
	s.loader = &kubeconfigs.Loader{Reader: s.Hub.Admin, Namespace: namespace, Clock: s.clock}
	s.reconciler = credentials.NewReconciler(credentials.Options{Hub: s.Hub.Admin, Loader: s.loader, Clock: s.clock})
	s.bound = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.name}}
	check.Must(s.T, s.Workers[0].Admin.Create(t.Context(), s.bound))
	kubeconfig, err := s.Workers[0].Cluster.KubeconfigBytes()
	check.Must(s.T, err)
	config, err := clientcmd.Load(kubeconfig)
	check.Must(s.T, err)
	user := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo]
	user.ClientCertificateData, user.ClientKeyData, user.Token = nil, nil, s.token()
	kubeconfig, err = clientcmd.Write(*config)
	check.Must(s.T, err)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.name, Labels: labels},
		Data:       map[string][]byte{kubeconfigs.SecretKey: kubeconfig},
	}
	check.Must(s.T, s.Hub.Admin.Create(t.Context(), secret))
	worker := &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Spec: v1alpha1.WorkerClusterSpec{
		Connection: v1alpha1.Connection{KubeconfigSecretRef: &v1alpha1.SecretReference{Name: s.name}},
	}}
	check.Must(s.T, s.Hub.Admin.Create(t.Context(), worker))
	t.Cleanup(func() { check.Must(s.T, client.IgnoreNotFound(s.Hub.Admin.Delete(context.Background(), worker))) })
	return s
}

var managed = map[string]string{v1alpha1.LabelRenew: v1alpha1.RenewToken}

func (s *scene) token() string {
	s.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To[int64](600),
		BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Secret", APIVersion: "v1", Name: s.bound.Name, UID: s.bound.UID},
	}}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	check.Must(s.T, s.Workers[0].Admin.SubResource("token").Create(s.Context(), of, request))
	return request.Status.Token
}

func (s *scene) secret() *corev1.Secret {
	s.Helper()
	secret := &corev1.Secret{}
	check.Must(s.T, s.Hub.Admin.Get(s.Context(), types.NamespacedName{Namespace: namespace, Name: s.name}, secret))
	return secret
}

func (s *scene) reconcile() reconcile.Result {
	s.Helper()
	result, err := s.reconciler.Reconcile(s.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: s.name}})
	check.Must(s.T, err)
	return result
}

// expiring returns reason and message of CredentialsExpiring, or nothing.
func (s *scene) expiring() (reason, message string) {
	s.Helper()
	worker := &v1alpha1.WorkerCluster{}
	check.Must(s.T, s.Hub.Admin.Get(s.Context(), types.NamespacedName{Name: s.name}, worker))
	if c := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterCredentialsExpiring); c != nil {
		return c.Reason, c.Message
	}
	return "", ""
}

func (s *scene) load() *kubeconfigs.Credentials {
	s.Helper()
	loaded, err := s.loader.Load(s.Context(), v1alpha1.Connection{KubeconfigSecretRef: &v1alpha1.SecretReference{Name: s.name}})
	check.Must(s.T, err)
	return loaded
}

// TestTokenIsRenewed renews a token under a connection that is in use: no request fails, and the connection stays.
func TestTokenIsRenewed(t *testing.T) {
	s := newScene(t, managed)
	before := s.secret()
	if due := s.reconcile().RequeueAfter; due < 3*time.Minute || due > 5*time.Minute {
		t.Errorf("a token of ten minutes is looked at again after %s", due)
	}
	if after := s.secret(); after.ResourceVersion != before.ResourceVersion {
		t.Error("a fresh token was renewed")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	fleet, err := remote.NewFleet(ctx, remote.Options{HubID: "hub-1", ProbeInterval: time.Second})
	check.Must(s.T, err)
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
		loaded := s.load()
		fleet.Ensure("east", remote.Credentials{Config: loaded.Config, Fingerprint: loaded.Fingerprint}, s.Workers[0].ID)
		return loaded.Fingerprint
	}
	inUse := func(fingerprint string) {
		cluster, _ := fleet.Get("east")
		gomega.NewWithT(t).Eventually(func() remote.Status { return cluster.Status() }, patience, 10*time.Millisecond).Should(
			gomega.SatisfyAll(gomega.HaveField("State", remote.Connected), gomega.HaveField("Fingerprint", fingerprint)))
	}
	old := ensure()
	inUse(old)
	s.clock.SetTime(s.clock.Now().Add(6 * time.Minute))
	s.reconcile()
	after := s.secret()
	requests := make(chan error, 1)
	go func() { requests <- s.request(fleet, 200) }()
	fresh := ensure()
	if fresh == old {
		t.Fatal("the token was not renewed")
	}
	inUse(fresh)
	check.Must(s.T, <-requests)
	mu.Lock()
	defer mu.Unlock()
	if len(left) > 0 {
		t.Errorf("the connection was interrupted: %q", left)
	}
	if len(after.Data) != 1 || after.Labels[v1alpha1.LabelRenew] != v1alpha1.RenewToken {
		t.Errorf("the Secret has become %v", after.ObjectMeta)
	}
	token, err := kubeconfigs.ParseServiceAccountToken(s.load().Config.BearerToken)
	check.Must(s.T, err)
	if token.SecretUID != s.bound.UID || token.Expires.Sub(token.Issued) != 10*time.Minute {
		t.Errorf("the new token is %+v, want one like the old", token)
	}
	if reason, message := s.expiring(); reason != "" {
		t.Errorf("the worker says %s: %s", reason, message)
	}
}

// request reads from a worker again and again.
func (s *scene) request(fleet *remote.Fleet, times int) error {
	cluster, _ := fleet.Get("east")
	for range times {
		reader, err := cluster.APIReader()
		if err != nil {
			return err
		}
		if err := reader.List(s.Context(), &corev1.NodeList{}); err != nil {
			return err
		}
	}
	return nil
}

// TestAdminsKubeconfig checks that a kubeconfig without the label is reported, and never written.
func TestAdminsKubeconfig(t *testing.T) {
	s := newScene(t, nil)
	before := s.secret()
	s.reconcile()
	if reason, _ := s.expiring(); reason != "" {
		t.Errorf("a token with ten minutes left of ten is %s", reason)
	}
	s.clock.SetTime(s.clock.Now().Add(9 * time.Minute))
	s.reconcile()
	reason, message := s.expiring()
	if reason != v1alpha1.ReasonExpiresSoon || !strings.Contains(message, "kubectl trainyard join "+s.name) {
		t.Errorf("the worker says %q: %q", reason, message)
	}
	if after := s.secret(); after.ResourceVersion != before.ResourceVersion {
		t.Error("the Secret of an admin was written")
	}
}

// TestRenewalIsRefused takes the right to renew away while a renewal is due, and gives it back.
func TestRenewalIsRefused(t *testing.T) {
	s := newScene(t, managed)
	before := s.secret()
	binding := &rbacv1.RoleBinding{}
	key := types.NamespacedName{Namespace: namespace, Name: account}
	check.Must(s.T, s.Workers[0].Admin.Get(t.Context(), key, binding))
	check.Must(s.T, s.Workers[0].Admin.Delete(t.Context(), binding))
	restore := func() {
		again := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}, RoleRef: binding.RoleRef, Subjects: binding.Subjects}
		check.Must(s.T, client.IgnoreAlreadyExists(s.Workers[0].Admin.Create(context.Background(), again)))
	}
	t.Cleanup(restore)
	s.clock.SetTime(s.clock.Now().Add(6 * time.Minute))
	gomega.NewWithT(t).Eventually(func() string { // The worker's authorizer sees the change a moment later.
		again := s.reconcile().RequeueAfter
		reason, message := s.expiring()
		if reason == v1alpha1.ReasonRenewalFailed && again != time.Minute {
			t.Errorf("the next try is after %s", again)
		}
		if reason == "" {
			check.Must(s.T, s.Hub.Admin.Update(context.Background(), withData(s.secret(), before.Data)))
		}
		return reason + message
	}, patience, 50*time.Millisecond).Should(gomega.SatisfyAll(
		gomega.HavePrefix(v1alpha1.ReasonRenewalFailed), gomega.ContainSubstring("forbidden"), gomega.ContainSubstring("kubectl trainyard join")))
	kept := s.secret()
	if string(kept.Data[kubeconfigs.SecretKey]) != string(before.Data[kubeconfigs.SecretKey]) {
		t.Error("the old token is gone, and there is no new one")
	}
	restore()
	gomega.NewWithT(t).Eventually(func() string {
		s.reconcile()
		reason, _ := s.expiring()
		return reason
	}, patience, 50*time.Millisecond).Should(gomega.BeEmpty(), "the token is renewed when the right is back")
	if after := s.secret(); string(after.Data[kubeconfigs.SecretKey]) == string(before.Data[kubeconfigs.SecretKey]) {
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
	check.Must(s.T, s.Workers[0].Admin.Delete(t.Context(), s.bound))
	s.clock.SetTime(s.clock.Now().Add(6 * time.Minute))
	s.reconcile()
	reason, message := s.expiring()
	if reason != v1alpha1.ReasonRenewalFailed || !strings.Contains(message, "Unauthorized") {
		t.Errorf("the worker says %q: %q", reason, message)
	}
}
