// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands_test

import (
	"context"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/trainyard/trainyard/kubeconfigs"
	"github.com/trainyard/trainyard/test/check"
)

// TestStolenTokens checks what the rights that join grants are good for.
func TestStolenTokens(t *testing.T) {
	setUpPair(t)
	if out, errOut, code := onPair(t, "join", "robbed", "--agent=none", "--wait=false"); code != 0 {
		t.Fatal(out, errOut)
	}
	defer leave(t, "robbed")
	credentials, err := kubeconfigs.Parse(kubeconfigOfJoined(t, "robbed"), time.Now())
	check.Must(t, err)
	t.Run("TokenOfOneWorkerIsUnknownToAnother", func(t *testing.T) {
		config := rest.AnonymousClientConfig(world.cluster.Config)
		config.BearerToken = credentials.Config.BearerToken
		_, err := kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsUnauthorized(err) {
			t.Errorf("another cluster says %v to the token", err)
		}
	})
	t.Run("TokenRenewsOnlyItself", func(t *testing.T) {
		thief := kubernetes.NewForConfigOrDie(credentials.Config)
		other := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
		for _, namespace := range []string{"trainyard-system", "default"} {
			if _, err := far.kubernetes.CoreV1().ServiceAccounts(namespace).Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = far.kubernetes.CoreV1().ServiceAccounts(namespace).Delete(context.Background(), other.Name, metav1.DeleteOptions{})
			})
			_, err := thief.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), other.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
			if !apierrors.IsForbidden(err) {
				t.Errorf("a token of another account in namespace %q: %v", namespace, err)
			}
		}
		if _, err := thief.CoreV1().Secrets("trainyard-system").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("the Secrets of the worker: %v", err)
		}
		if _, err := thief.CoreV1().ServiceAccounts("trainyard-system").CreateToken(t.Context(), "trainyard-hub", &authenticationv1.TokenRequest{}, metav1.CreateOptions{}); err != nil {
			t.Errorf("a token of its own account: %v", err)
		}
	})
	t.Run("ManagerWritesOnlySecretsOfJoin", func(t *testing.T) {
		admins := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "of-an-admin"}}
		if _, err := world.kubernetes.CoreV1().Secrets("trainyard-system").Create(t.Context(), admins, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		config := rest.CopyConfig(world.cluster.Config)
		config.Impersonate.UserName = "system:serviceaccount:trainyard-system:trainyard-manager"
		manager := kubernetes.NewForConfigOrDie(config).CoreV1().Secrets("trainyard-system")
		label := []byte(`{"metadata":{"labels":{"x":"y"}}}`)
		if _, err := manager.Patch(t.Context(), admins.Name, types.MergePatchType, label, metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("the manager writes a Secret that join has not made: %v", err)
		}
		if _, err := manager.Patch(t.Context(), "robbed-kubeconfig", types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
			t.Errorf("the manager cannot write the Secret of join: %v", err)
		}
		if err := manager.Delete(t.Context(), "robbed-kubeconfig", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("the manager deletes a Secret: %v", err)
		}
	})
}
