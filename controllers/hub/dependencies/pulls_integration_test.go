// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dependencies_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// account creates a ServiceAccount of the hub with consent, which pulls images with Secrets.
func (s *scene) account(t *testing.T, pulls ...string) *corev1.ServiceAccount {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.Namespace, Name: "runner", Labels: map[string]string{v1alpha1.LabelPropagate: v1alpha1.PropagateYes},
	}}
	for _, name := range pulls {
		account.ImagePullSecrets = append(account.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	s.create(t, account)
	return account
}

// placeWithAccount places a job whose pods run as the account.
func (s *scene) placeWithAccount(t *testing.T, name string) *v1alpha1.Dispatch {
	t.Helper()
	d := s.Place(t, s.Submit(t, name), workerName, func(d *v1alpha1.Dispatch) {
		d.Spec.Dependencies = []v1alpha1.Dependency{{Kind: "ServiceAccount", Name: "runner"}}
	})
	s.settleDispatch(t, d)
	return d
}

// The Secrets with which an account pulls images come with it, if their owners have agreed too. They are kept up to date, cost
// the next job no request, and go with the last job that needs the account, also with another process.
func TestPullSecretsComeWithTheirAccount(t *testing.T) {
	s := newScene(t)
	registry, unwilling, other := s.secret("registry", "one"), s.secret("unwilling", "x"), s.secret("other", "x")
	unwilling.Labels = nil
	s.create(t, registry)
	s.create(t, other)
	s.Hub.Create(t, unwilling)
	account := s.account(t, "registry", "unwilling", "absent")
	d := s.placeWithAccount(t, "job")
	check.Diff(t, []string(nil), s.bring(t, d), "what was left alone")
	s.expectToken(t, "registry", "one")
	s.expectToken(t, "unwilling", "")
	s.expectToken(t, "other", "")
	s.expectRecord(t, "Secret/registry,ServiceAccount/runner")
	check.Equal(t, true, s.reconciler.IsBrought(t.Context(), d), "whether everything is there")
	check.Equal(t, true, s.reconciler.Pulls(s.Namespace, v1alpha1.Dependency{Kind: "Secret", Name: "registry"}), "whether a change counts")
	check.Equal(t, false, s.reconciler.Pulls(s.Namespace, v1alpha1.Dependency{Kind: "Secret", Name: "other"}), "whether a change of another counts")
	before := s.sent.requests.Load()
	next := s.placeWithAccount(t, "next")
	s.bring(t, next)
	check.Equal(t, before, s.sent.requests.Load(), "requests for the next job")

	registry.Data["token"] = []byte("two")
	must(t, s.Hub.Admin.Update(t.Context(), registry))
	s.settleHub(t, registry)
	s.reconcile(t)
	s.expectToken(t, "registry", "two")
	account.ImagePullSecrets = append(account.ImagePullSecrets, corev1.LocalObjectReference{Name: "other"})
	must(t, s.Hub.Admin.Update(t.Context(), account))
	s.settleHub(t, account)
	s.reconcile(t)
	s.expectToken(t, "other", "x")

	s.end(t, d)
	s.restart()
	s.Clock.Step(time.Minute)
	s.reconcile(t)
	s.expectToken(t, "registry", "two")
	s.end(t, next)
	s.reconcile(t)
	s.expectToken(t, "registry", "")
	s.expectToken(t, "other", "")
	s.expectRecord(t, "")
}

// While an account is needed that another process has brought, and whose consent was taken back, its Secrets stay: nobody can
// ask which they are.
func TestPullSecretsOfAnAccountWithoutConsent(t *testing.T) {
	s := newScene(t)
	s.create(t, s.secret("registry", "one"))
	account := s.account(t, "registry")
	d := s.placeWithAccount(t, "job")
	s.bring(t, d)
	account.Labels = nil
	must(t, s.Hub.Admin.Update(t.Context(), account))
	s.settleHub(t, account)
	s.restart()
	s.Clock.Step(time.Minute)
	s.reconcile(t)
	s.expectToken(t, "registry", "one")
	s.end(t, d)
	s.reconcile(t)
	s.expectToken(t, "registry", "")
	s.expectRecord(t, "")
}

// A Secret that the account on the hub names no more stays while jobs need the account: their pods name it. Neither does it go
// because a copy was refused meanwhile.
func TestPullSecretThatTheAccountNamesNoMore(t *testing.T) {
	s := newScene(t)
	s.create(t, s.secret("registry", "one"))
	s.create(t, s.secret("other", "x"))
	account := s.account(t, "registry")
	d := s.placeWithAccount(t, "job")
	s.bring(t, d)
	account.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "other"}}
	must(t, s.Hub.Admin.Update(t.Context(), account))
	s.settleHub(t, account)
	s.reconcile(t)
	s.expectToken(t, "registry", "one")
	s.expectToken(t, "other", "x")
	s.reconciler.Doubt(d)
	s.reconcile(t)
	s.expectToken(t, "registry", "one")
	s.end(t, d)
	s.reconcile(t)
	s.expectToken(t, "registry", "")
	s.expectToken(t, "other", "")
	s.expectRecord(t, "")
}

// A foreign Secret under the name of a pull Secret is left alone, and the job is told. With a foreign account on the worker no
// Secrets come for it: pods run as that account.
func TestForeignPullSecrets(t *testing.T) {
	s := newScene(t)
	s.create(t, s.secret("registry", "one"))
	s.account(t, "registry")
	foreign := s.secret("registry", "foreign")
	foreign.Labels = nil
	must(t, s.worker.Admin.Create(t.Context(), foreign))
	d := s.placeWithAccount(t, "job")
	if left := strings.Join(s.bring(t, d), ""); !strings.Contains(left, "Secret/registry is on the worker already") {
		t.Errorf("the job is told %q", left)
	}
	s.end(t, d)
	s.reconcile(t)
	s.expectToken(t, "registry", "foreign")

	s = newScene(t)
	s.create(t, s.secret("registry", "one"))
	s.account(t, "registry")
	must(t, s.worker.Admin.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "runner"}}))
	s.bring(t, s.placeWithAccount(t, "job"))
	s.expectToken(t, "registry", "")
	s.expectRecord(t, "")
}
