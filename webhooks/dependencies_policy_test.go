// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks_test

import (
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/trainyard/trainyard/test/check"
)

// TestStolenTokenOfTheHub: with the rights of config/worker-dependencies, whoever has the hub's token reads no Secret of the
// worker. It writes into namespaces that Trainyard has made or that an admin has labelled, changes and deletes only what a
// hub has brought, and gets no token of an account.
func TestStolenTokenOfTheHub(t *testing.T) {
	e := env(t)
	check.Must(t, e.cluster.ApplyFiles(t.Context(), "../config/worker-dependencies/cluster_role.yaml",
		"../config/worker-dependencies/cluster_role_binding.yaml", "../config/worker-dependencies/namespaces.yaml"))
	labelled := func(key, value string) string {
		return e.namespace(t, func(ns *corev1.Namespace) { ns.Labels = map[string]string{key: value} })
	}
	const mark = "trainyard.dev/propagated-by"
	plain, refused := e.namespace(t), labelled("trainyard.dev/dependencies", "false")
	made, willed := labelled(mark, "hub-1"), labelled("trainyard.dev/dependencies", "true")
	config := rest.CopyConfig(e.cluster.Config)
	config.Impersonate.UserName = theHub
	hub, err := kubernetes.NewForConfig(config)
	check.Must(t, err)
	secret := func(namespace, name string, labels map[string]string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
	}
	create := func(s *corev1.Secret) error {
		_, err := hub.CoreV1().Secrets(s.Namespace).Create(t.Context(), s, metav1.CreateOptions{})
		return err
	}
	ours := map[string]string{mark: "hub-1"}
	eventually(t, "rights, and policy to be in force", func(g gomega.Gomega) {
		g.Expect(create(secret(made, "first", ours))).To(gomega.Or(gomega.Succeed(), gomega.Satisfy(apierrors.IsAlreadyExists)))
		g.Expect(create(secret(plain, "probe", ours))).To(gomega.MatchError(gomega.ContainSubstring("trainyard.dev/dependencies=true")))
	})
	for _, ns := range []string{made, willed} {
		check.Must(t, create(secret(ns, "brought", ours)))
		e.create(t, secret(ns, "foreign", nil))
	}
	patch := func(namespace, name, patch string) error {
		_, err := hub.CoreV1().Secrets(namespace).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	update := func(s *corev1.Secret) error {
		_, err := hub.CoreV1().Secrets(s.Namespace).Update(t.Context(), s, metav1.UpdateOptions{})
		return err
	}
	token := secret(made, "token", ours)
	token.Type, token.Annotations = corev1.SecretTypeServiceAccountToken, map[string]string{corev1.ServiceAccountNameKey: "default"}
	_, getErr := hub.CoreV1().Secrets(made).Get(t.Context(), "brought", metav1.GetOptions{})
	_, listErr := hub.CoreV1().Secrets(made).List(t.Context(), metav1.ListOptions{})
	for what, err := range map[string]error{
		"a Secret in a foreign namespace":         create(secret(plain, "other", ours)),
		"a Secret in a namespace that is refused": create(secret(refused, "other", ours)),
		"a Secret without a mark":                 create(secret(made, "other", nil)),
		"a token of an account":                   create(token),
		"a patch of a foreign Secret":             patch(made, "foreign", `{}`),
		"a patch of a Secret that was brought":    patch(made, "brought", `{}`),
		"a mark on a foreign Secret":              update(secret(made, "foreign", ours)),
		"a mark that is taken off":                update(secret(made, "brought", nil)),
		"the mark of another hub":                 update(secret(made, "brought", map[string]string{mark: "hub-2"})),
		"the deletion of a foreign Secret":        hub.CoreV1().Secrets(willed).Delete(t.Context(), "foreign", metav1.DeleteOptions{}),
		"a read":                                  getErr,
		"a list":                                  listErr,
		"a deletion of many":                      hub.CoreV1().Secrets(made).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: the answer is %v, and should be that it is forbidden", what, err)
		}
	}
	check.Must(t, update(secret(willed, "brought", ours)))
	check.Must(t, hub.CoreV1().Secrets(willed).Delete(t.Context(), "brought", metav1.DeleteOptions{}))
}
